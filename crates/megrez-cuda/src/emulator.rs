//! Kernels on the host, for tests: the same files, compiled by the host's C++ compiler with `kernels/host.hpp`, started
//! by the same calls. Every buffer ends at a page that may not be touched, starts as garbage, and undefined behaviour of
//! the compiled code ends the process.

use crate::Result;
use crate::backend::{Arg, Backend, Launch, Statistics};
use crate::cache::Cache;
use crate::source::Unit;
use megrez_kernels::DeviceError;
use std::collections::HashMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::{env, fs};

const HEADER: &str = include_str!("../kernels/host.hpp");
const FLAGS: [&str; 13] = [
    "-x",
    "c++",
    "-std=c++17",
    "-O1",
    "-shared",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-U_FORTIFY_SOURCE",
    "-fsanitize=undefined",
    "-fsanitize-undefined-trap-on-error",
];

const MEMORY: &str = r#"
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
static const uint64_t PAGE = 4096;
extern "C" uint64_t take(uint64_t bytes) {
    uint64_t room = (bytes + PAGE - 1) / PAGE * PAGE;
    char* at = (char*)mmap(0, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at + room, PAGE, PROT_NONE);
    memset(at, 0xcd, room);
    return (uint64_t)(at + room - bytes);
}
extern "C" void give(uint64_t at, uint64_t bytes) {
    munmap((void*)(at / PAGE * PAGE), (bytes + PAGE - 1) / PAGE * PAGE + PAGE);
}
"#;

type Start = unsafe extern "C" fn(*const u32, u32, u32, *const *mut c_void);

/// The host as a device.
pub(crate) struct Emulator {
    folder: PathBuf,
    take: unsafe extern "C" fn(u64) -> u64,
    give: unsafe extern "C" fn(u64, u64),
    statistics: Mutex<Statistics>,
}

/// Compiles and loads a source; the file's name is its hash.
fn build(folder: &Path, source: &str) -> std::result::Result<&'static libloading::Library, String> {
    let library = folder.join(format!("{}.so", Cache::name(&[source, HEADER, &FLAGS.join(" ")])));
    if !library.exists() {
        let partial = library.with_extension(format!("{}.partial", std::process::id()));
        let text = partial.with_extension("cu");
        fs::write(&text, source).map_err(|e| e.to_string())?;
        let compiler = env::var_os("CXX").unwrap_or("c++".into());
        let made = Command::new(&compiler)
            .args(FLAGS)
            .arg("-I")
            .arg(folder)
            .arg("-o")
            .arg(&partial)
            .arg(&text)
            .output();
        let made = made.map_err(|e| format!("{} does not run: {e}", compiler.display()))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        fs::rename(&partial, &library).map_err(|e| e.to_string())?;
        let _ = fs::remove_file(text);
    }
    // SAFETY: the library was built from our source and has no initialisers. It is never unloaded.
    let library = unsafe { libloading::Library::new(&library) }.map_err(|e| e.to_string())?;
    Ok(Box::leak(Box::new(library)))
}

impl Emulator {
    /// The host, if it has a C++ compiler; otherwise why not.
    pub(crate) fn new() -> std::result::Result<Self, String> {
        let folder = env::temp_dir().join("megrez-cuda-emulator");
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let header = folder.join("host.hpp");
        if fs::read(&header).ok().as_deref() != Some(HEADER.as_bytes()) {
            let partial = folder.join(format!("host.hpp.{}", std::process::id()));
            fs::write(&partial, HEADER)
                .and_then(|()| fs::rename(partial, header))
                .map_err(|e| e.to_string())?;
        }
        let memory = build(&folder, MEMORY)?;
        // SAFETY: these are the types of the two functions above.
        let (take, give) = unsafe {
            (
                *memory.get(b"take").map_err(|e| e.to_string())?,
                *memory.get(b"give").map_err(|e| e.to_string())?,
            )
        };
        Ok(Emulator { folder, take, give, statistics: Mutex::default() })
    }

    fn library(&self, unit: &Unit) -> Result<&'static libloading::Library> {
        // One set of libraries for the process: the state of a library is static.
        static LIBRARIES: OnceLock<Mutex<HashMap<Unit, &'static libloading::Library>>> = OnceLock::new();
        let mut all = LIBRARIES.get_or_init(Mutex::default).lock().unwrap();
        if let Some(library) = all.get(unit) {
            return Ok(library);
        }
        let library = build(&self.folder, &unit.source()).map_err(|log| DeviceError {
            device: self.describe(),
            what: format!("{}: {log}", unit.name()),
        })?;
        all.insert(unit.clone(), library);
        Ok(library)
    }
}

impl Backend for Emulator {
    fn describe(&self) -> String {
        "host (cuda kernels)".into()
    }

    fn processors(&self) -> usize {
        4
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.statistics.lock().unwrap().allocated(bytes);
        // SAFETY: the function takes any size.
        Ok(unsafe { (self.take)(bytes as u64) })
    }

    fn upload(&self, data: &[u8], padded: usize) -> Result<u64> {
        let at = self.allocate(padded)?;
        self.statistics.lock().unwrap().uploaded += data.len() as u64;
        // SAFETY: `padded` bytes were just taken there, and there are no more data.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at as *mut u8, data.len()) };
        Ok(at)
    }

    fn release(&self, at: u64, bytes: usize) {
        self.statistics.lock().unwrap().memory -= bytes;
        // SAFETY: the owner is gone, and launches end before they return.
        unsafe { (self.give)(at, bytes as u64) }
    }

    fn download(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.statistics.lock().unwrap().downloaded += out.len() as u64;
        // SAFETY: the caller owns as many bytes there.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn clear(&self, at: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller owns as many bytes there.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0, bytes) };
        Ok(())
    }

    fn launch(&self, unit: &Unit, kernel: &'static str, launch: Launch, args: &[&dyn Arg]) -> Result<()> {
        let library = self.library(unit)?;
        let grid = launch.grid.map(|d| d as u32);
        let args: Vec<*mut c_void> = args.iter().map(|&a| a.at()).collect();
        let mut statistics = self.statistics.lock().unwrap();
        statistics.kernels.entry(kernel).or_default().launches += 1;
        // One launch at a time: the emulator of a library is static.
        static RUNNING: Mutex<()> = Mutex::new(());
        let _running = RUNNING.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: `EXPORT` defines the function with this type; the arguments are those of the kernel's parameters.
        unsafe {
            let start: libloading::Symbol<'_, Start> =
                library.get(format!("launch_{kernel}").as_bytes()).expect("every kernel is exported");
            start(grid.as_ptr(), launch.threads, launch.shared, args.as_ptr());
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        Ok(self.statistics.lock().unwrap().clone())
    }
}
