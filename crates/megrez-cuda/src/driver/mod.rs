//! A GPU through the CUDA driver.

mod available;
mod compile;

pub(crate) use available::available;

use available::plain;

use crate::backend::Result;
use crate::backend::{Arg, Backend, Launch, Statistics};
use crate::cache::Cache;
use crate::gpu::Gpu;
use crate::source::Unit;
use compile::compile;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use megrez_kernels::DeviceError;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, MutexGuard};

/// Bytes of one of the two pinned buffers through which copies go.
const STAGING: usize = 8 << 20;
/// Kernel times are collected when this many launches wait for it.
const TIMED: usize = 4096;

/// A handle of the driver, which may be used from any thread.
#[derive(Clone, Copy)]
struct Handle<T>(T);
// SAFETY: the driver's contexts, streams, events, modules and functions are not tied to a thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

struct Timed {
    kernel: &'static str,
    start: Handle<sys::CUevent>,
    stop: Handle<sys::CUevent>,
}

struct Staging {
    buffers: [Handle<*mut u8>; 2],
    done: [Handle<sys::CUevent>; 2],
}

impl Staging {
    fn new() -> std::result::Result<Self, DriverError> {
        // SAFETY: pinned memory is written before it is read: by the caller, or by a copy that is
        // waited for.
        let buffer = || unsafe { result::malloc_host(STAGING, 0) }.map(|p| Handle(p.cast::<u8>()));
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map(Handle);
        Ok(Staging { buffers: [buffer()?, buffer()?], done: [event()?, event()?] })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        for b in 0..2 {
            // SAFETY: both were made by `new` and nobody holds them; the device's work is done or
            // the device is lost. Neither call can be helped if it fails.
            unsafe {
                let _ = result::free_host(self.buffers[b].0.cast());
                let _ = result::event::destroy(self.done[b].0);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Function {
    handle: Handle<sys::CUfunction>,
    /// Bytes of dynamic shared memory that a launch may ask for.
    limit: u32,
}

/// Bytes of dynamic shared memory that every function may have.
const SHARED: u32 = 48 << 10;

#[derive(Default)]
struct State {
    modules: HashMap<Unit, Handle<sys::CUmodule>>,
    functions: HashMap<(Unit, &'static str), Function>,
    statistics: Statistics,
    timed: Vec<Timed>,
    events: Vec<Handle<sys::CUevent>>,
}

/// One GPU, one queue of kernels, and one queue of copies in each direction beside it.
pub(crate) struct Driver {
    gpu: Gpu,
    processors: usize,
    shared_memory: usize,
    context: Handle<sys::CUcontext>,
    work: Handle<sys::CUstream>,
    up: Handle<sys::CUstream>,
    down: Handle<sys::CUstream>,
    cache: Cache,
    state: Mutex<State>,
    uploads: Mutex<Staging>,
    downloads: Mutex<Staging>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Driver {
    pub(crate) fn new(ordinal: usize) -> Result<Self> {
        let refuse = |what: String| DeviceError { device: format!("cuda:{ordinal}"), what };
        let gpus = available().map_err(refuse)?;
        let Some(gpu) = gpus.get(ordinal).cloned() else {
            return Err(refuse(format!("there is no such GPU; this machine has {}", gpus.len())));
        };
        if gpu.capability < (8, 0) {
            return Err(refuse(format!(
                "{} has compute capability {}.{}; 8.0 or newer is needed",
                gpu.name, gpu.capability.0, gpu.capability.1
            )));
        }
        Self::open(gpu).map_err(|e| refuse(format!("cannot be opened: {}", plain(e))))
    }

    fn open(gpu: Gpu) -> std::result::Result<Self, DriverError> {
        let device = result::device::get(gpu.ordinal as i32)?;
        // SAFETY: `device` comes from the driver; the context is retained for the life of the
        // process and is current while streams and pinned memory are made in it; the attribute's
        // value is a 64-bit number.
        let (context, processors, shared_memory) = unsafe {
            let context = result::primary_ctx::retain(device)?;
            result::ctx::set_current(context)?;
            let mut keep = u64::MAX;
            result::mem_pool::set_attribute(
                result::device::get_mem_pool(device)?,
                sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut keep).cast(),
            )?;
            let attribute = |a| result::device::get_attribute(device, a).map(|x| x as usize);
            (
                context,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            )
        };
        let stream = || result::stream::create(result::stream::StreamKind::NonBlocking).map(Handle);
        Ok(Driver {
            processors,
            shared_memory,
            context: Handle(context),
            work: stream()?,
            up: stream()?,
            down: stream()?,
            cache: Cache::of_user(),
            state: Mutex::default(),
            uploads: Mutex::new(Staging::new()?),
            downloads: Mutex::new(Staging::new()?),
            gpu,
        })
    }

    /// A call to the driver, with the context current; `doing` says what failed.
    fn call<T>(&self, doing: &str, call: impl FnOnce() -> std::result::Result<T, DriverError>) -> Result<T> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.context.0) }
            .and_then(|()| call())
            .map_err(|e| self.failed(doing, e))
    }

    fn failed(&self, doing: &str, error: DriverError) -> DeviceError {
        let hint = match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let (free, total) = result::mem_get_info().unwrap_or_default();
                format!(
                    ": not enough memory, {} MiB of {} MiB are free; use smaller batches, fewer parties on this GPU, or \
                     another device",
                    free >> 20,
                    total >> 20
                )
            }
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_UNKNOWN => {
                ": the device is lost to this process; start it again, and look at the system's log if that does not help"
                    .into()
            }
            _ => String::new(),
        };
        DeviceError { device: self.describe(), what: format!("{doing}: {}{hint}", plain(error)) }
    }

    /// The machine code of a unit: from the cache, or compiled now.
    fn image(&self, unit: &Unit, statistics: &mut Statistics) -> Result<Vec<u8>> {
        let (major, minor) = self.gpu.capability;
        // Some instructions exist on one architecture alone.
        let alone = if self.groups() { "a" } else { "" };
        let arch = format!("--gpu-architecture=sm_{major}{minor}{alone}");
        let compiler = format!("nvrtc {}.{}", self.gpu.nvrtc.0, self.gpu.nvrtc.1);
        let source = unit.source();
        let name = Cache::name(&[&arch, &compiler, &source]);
        if let Some(image) = self.cache.get(&name) {
            return Ok(image);
        }
        statistics.compiled += 1;
        // An NVRTC older than the GPU knows no such architecture: the driver compiles its portable
        // form.
        let image = compile(&source, &arch, false)
            .or_else(|first| compile(&source, "--gpu-architecture=compute_80", true).map_err(|_| first))
            .map_err(|log| DeviceError {
                device: self.describe(),
                what: format!("cannot compile {}: {log}", unit.name()),
            })?;
        self.cache.put(&name, &image);
        Ok(image)
    }

    fn function(
        &self,
        state: &mut State,
        unit: &Unit,
        kernel: &'static str,
        shared: u32,
    ) -> Result<sys::CUfunction> {
        let key = (unit.clone(), kernel);
        let mut function = match state.functions.get(&key) {
            Some(&function) => function,
            None => Function { handle: Handle(self.load(state, unit, kernel)?), limit: SHARED },
        };
        // The limit is the function's: one that a launch lowers would refuse the next larger one.
        if shared > function.limit {
            // SAFETY: the function's module is never unloaded before the context goes.
            self.call(kernel, || unsafe {
                result::function::set_function_attribute(
                    function.handle.0,
                    sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared as i32,
                )
            })?;
            function.limit = shared;
        }
        state.functions.insert(key, function);
        Ok(function.handle.0)
    }

    fn load(&self, state: &mut State, unit: &Unit, kernel: &'static str) -> Result<sys::CUfunction> {
        let module = match state.modules.get(unit) {
            Some(module) => module.0,
            None => {
                let image = self.image(unit, &mut state.statistics)?;
                // SAFETY: `image` is a whole cubin, or PTX with its final zero, made by NVRTC.
                let module = self.call("loading kernels", || unsafe {
                    result::module::load_data(image.as_ptr().cast())
                })?;
                state.modules.insert(unit.clone(), Handle(module));
                module
            }
        };
        let name = CString::new(kernel).expect("kernel names have no zeros");
        // SAFETY: the module is loaded and never unloaded before the context goes.
        self.call(kernel, || unsafe { result::module::get_function(module, name) })
    }

    /// Adds the times of launches that wait for it, waiting for the device.
    fn collect(&self, state: &mut State) -> std::result::Result<(), DriverError> {
        for Timed { kernel, start, stop } in std::mem::take(&mut state.timed) {
            // SAFETY: both events were made with timing and recorded on the same stream.
            let milliseconds = unsafe {
                result::event::synchronize(stop.0)?;
                result::event::elapsed(start.0, stop.0)?
            };
            let time = state.statistics.kernels.entry(kernel).or_default();
            time.launches += 1;
            time.seconds += f64::from(milliseconds) / 1e3;
            state.events.extend([start, stop]);
        }
        Ok(())
    }

    /// Makes `later` wait for what `sooner` has been given so far.
    fn order(
        sooner: Handle<sys::CUstream>,
        later: Handle<sys::CUstream>,
    ) -> std::result::Result<(), DriverError> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: the event and the streams live; destroying a recorded event leaves what waits for
        // it waiting.
        unsafe {
            result::event::record(event, sooner.0)?;
            result::stream::wait_event(later.0, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)?;
            result::event::destroy(event)
        }
    }
}

impl Backend for Driver {
    fn describe(&self) -> String {
        let Gpu { ordinal, name, driver, nvrtc, .. } = &self.gpu;
        format!("cuda:{ordinal} ({name}, driver {}.{}, nvrtc {}.{})", driver.0, driver.1, nvrtc.0, nvrtc.1)
    }

    fn processors(&self) -> usize {
        self.processors
    }

    fn shared_memory(&self) -> usize {
        self.shared_memory
    }

    fn groups(&self) -> bool {
        self.gpu.capability == (9, 0)
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        // SAFETY: memory is used on this stream, or on one that is ordered after it.
        let at = self.call(&format!("allocating {} MiB", bytes >> 20), || unsafe {
            result::malloc_async(self.work.0, bytes)
        })?;
        lock(&self.state).statistics.allocated(bytes);
        Ok(at)
    }

    fn upload(&self, data: &[u8], padded: usize) -> Result<u64> {
        let staging = lock(&self.uploads);
        let at = self.call(&format!("uploading {} MiB", padded >> 20), || {
            // SAFETY: the memory is this copy's until `work` is ordered after it. A pinned buffer
            // is written only after the copy out of it that was recorded last; an event never
            // recorded counts as done.
            unsafe {
                let at = result::malloc_async(self.up.0, padded)?;
                for (c, chunk) in data.chunks(STAGING).enumerate() {
                    let (buffer, done) = (staging.buffers[c % 2].0, staging.done[c % 2].0);
                    result::event::synchronize(done)?;
                    std::ptr::copy_nonoverlapping(chunk.as_ptr(), buffer, chunk.len());
                    let pinned = std::slice::from_raw_parts(buffer, chunk.len());
                    result::memcpy_htod_async(at + (c * STAGING) as u64, pinned, self.up.0)?;
                    result::event::record(done, self.up.0)?;
                }
                Self::order(self.up, self.work)?;
                Ok(at)
            }
        })?;
        let statistics = &mut lock(&self.state).statistics;
        statistics.allocated(padded);
        statistics.uploaded += data.len() as u64;
        Ok(at)
    }

    fn release(&self, at: u64, bytes: usize) {
        // SAFETY: the owner is gone, and every use was given to this stream or one that it waits
        // for. On a lost device there is nothing to free.
        let _ = self.call("freeing memory", || unsafe { result::free_async(at, self.work.0) });
        lock(&self.state).statistics.memory -= bytes;
    }

    fn download(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let staging = lock(&self.downloads);
        let bytes = out.len();
        self.call("downloading", || {
            Self::order(self.work, self.down)?;
            let mut chunks = out.chunks_mut(STAGING).enumerate();
            let mut pending: Option<(usize, &mut [u8])> = None;
            loop {
                let next = chunks.next();
                // SAFETY: chunk c + 1 is copied into the other buffer while chunk c is taken out of
                // its own, after the event that was recorded behind its copy.
                unsafe {
                    if let Some((c, chunk)) = &next {
                        let pinned = std::slice::from_raw_parts_mut(staging.buffers[c % 2].0, chunk.len());
                        result::memcpy_dtoh_async(pinned, at + (c * STAGING) as u64, self.down.0)?;
                        result::event::record(staging.done[c % 2].0, self.down.0)?;
                    }
                    if let Some((c, chunk)) = pending {
                        result::event::synchronize(staging.done[c % 2].0)?;
                        std::ptr::copy_nonoverlapping(
                            staging.buffers[c % 2].0,
                            chunk.as_mut_ptr(),
                            chunk.len(),
                        );
                    }
                }
                pending = next;
                if pending.is_none() {
                    return Ok(());
                }
            }
        })?;
        lock(&self.state).statistics.downloaded += bytes as u64;
        Ok(())
    }

    fn clear(&self, at: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller owns `bytes` bytes there.
        self.call("clearing memory", || unsafe { result::memset_d8_async(at, 0, bytes, self.work.0) })
    }

    fn launch(&self, unit: &Unit, kernel: &'static str, launch: Launch, args: &[&dyn Arg]) -> Result<()> {
        // The lock is held so that no other launch comes between a kernel and the events around it.
        let mut state = lock(&self.state);
        let function = self.function(&mut state, unit, kernel, launch.shared)?;
        let mut params: Vec<*mut c_void> = args.iter().map(|&a| a.at()).collect();
        let [x, y, z] = launch.grid.map(|d| d as u32);
        self.call(kernel, || {
            if state.timed.len() >= TIMED {
                self.collect(&mut state)?;
            }
            let mut event = || match state.events.pop() {
                Some(event) => Ok(event),
                None => result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Handle),
            };
            let (start, stop) = (event()?, event()?);
            // SAFETY: the arguments are those of the kernel's parameters, and point to memory that
            // lives until work given later frees it; the differential suite runs every kernel
            // through this same call.
            unsafe {
                result::event::record(start.0, self.work.0)?;
                let (grid, block) = ((x, y, z), (launch.threads, 1, 1));
                result::launch_kernel(function, grid, block, launch.shared, self.work.0, &mut params)?;
                result::event::record(stop.0, self.work.0)?;
            }
            state.timed.push(Timed { kernel, start, stop });
            Ok(())
        })
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: the streams live as long as `self`.
        self.call("waiting for the device", || unsafe {
            result::stream::synchronize(self.up.0)?;
            result::stream::synchronize(self.work.0)
        })
    }

    fn statistics(&self) -> Result<Statistics> {
        let mut state = lock(&self.state);
        self.call("reading kernel times", || self.collect(&mut state))?;
        Ok(state.statistics.clone())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.synchronize();
        let state = lock(&self.state);
        let events = state.events.iter().chain(state.timed.iter().flat_map(|t| [&t.start, &t.stop]));
        // SAFETY: nobody else holds this device, and its work is done or lost; errors cannot be
        // helped here.
        unsafe {
            for event in events {
                let _ = result::event::destroy(event.0);
            }
            for module in state.modules.values() {
                let _ = result::module::unload(module.0);
            }
            for stream in [self.work, self.up, self.down] {
                let _ = result::stream::destroy(stream.0);
            }
        }
        // The pinned buffers go with the fields after this; they need the context, which the
        // process keeps.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_gpu_is_a_clear_error() {
        match available() {
            Ok(gpus) => {
                let error = Driver::new(gpus.len()).err().expect("there is no such GPU");
                assert!(error.what.contains("no such GPU"), "{error}");
            }
            Err(why) => {
                let error = Driver::new(0).err().expect("there is no GPU");
                assert_eq!(error.what, why);
            }
        }
    }
}
