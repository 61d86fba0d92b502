//! Kernels on the host, for tests: the same files, compiled by the host's C++ compiler with
//! `kernels/host.hpp`, started by the same calls. Every buffer ends at a page that may not be
//! touched, starts as garbage, and undefined behaviour of the compiled code ends the process.

use crate::backend::Result;
use crate::backend::{Arg, Backend, Launch, Statistics};
use crate::cache::Cache;
use crate::source::Unit;
use std::collections::HashMap;
use std::ffi::c_void;
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, process};

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
    take: unsafe extern "C" fn(u64) -> u64,
    give: unsafe extern "C" fn(u64, u64),
    statistics: Mutex<Statistics>,
    groups: bool,
}

/// The libraries of this process, by source; one at a time is built or runs, since their state is
/// static.
static LIBRARIES: Mutex<Option<HashMap<String, &'static libloading::Library>>> = Mutex::new(None);

fn compiler() -> Command {
    Command::new(env::var_os("CXX").unwrap_or("c++".into()))
}

/// The library of a source, compiled unless an earlier run has. Code that does not compile ends the
/// test.
fn library(source: &str) -> &'static libloading::Library {
    let mut all = LIBRARIES.lock().unwrap_or_else(|e| e.into_inner());
    let all = all.get_or_insert_default();
    if let Some(library) = all.get(source) {
        return library;
    }
    let folder = env::temp_dir().join("megrez-cuda-emulator");
    let name = Cache::name(&[source, HEADER, &FLAGS.join(" ")]);
    let path = folder.join(format!("{name}.so"));
    if !path.exists() {
        let place = folder.join(format!("{name}.{}", process::id()));
        fs::create_dir_all(&place).expect("the temporary folder can be written");
        fs::write(place.join("host.hpp"), HEADER).expect("the temporary folder can be written");
        fs::write(place.join("kernels.cu"), source).expect("the temporary folder can be written");
        let made =
            compiler().args(FLAGS).args(["-o", "kernels.so", "kernels.cu"]).current_dir(&place).output();
        let made = made.expect("the compiler was there a moment ago");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::rename(place.join("kernels.so"), &path).expect("the temporary folder can be written");
        let _ = fs::remove_dir_all(place);
    }
    // SAFETY: the library was built from our source and has no initialisers. It is never unloaded.
    let library = unsafe { libloading::Library::new(&path) }.expect("what was compiled can be loaded");
    let library = Box::leak(Box::new(library));
    all.insert(source.into(), library);
    library
}

impl Emulator {
    /// The host, if it has a C++ compiler; otherwise why not. Warps multiply in `groups` or each
    /// for itself.
    pub(crate) fn new(groups: bool) -> std::result::Result<Self, String> {
        let found = compiler().arg("--version").output();
        found.map_err(|e| format!("{} does not run: {e}", compiler().get_program().display()))?;
        let memory = library(MEMORY);
        // SAFETY: these are the types of the two functions above.
        let (take, give) = unsafe {
            (*memory.get(b"take").expect("defined above"), *memory.get(b"give").expect("defined above"))
        };
        Ok(Emulator { take, give, statistics: Mutex::default(), groups })
    }
}

impl Backend for Emulator {
    fn describe(&self) -> String {
        "host (cuda kernels)".into()
    }

    fn processors(&self) -> usize {
        4
    }

    fn shared_memory(&self) -> usize {
        if self.groups { 227 << 10 } else { 99 << 10 }
    }

    fn groups(&self) -> bool {
        self.groups
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
        let library = library(&unit.source());
        let grid = launch.grid.map(|d| d as u32);
        let args: Vec<*mut c_void> = args.iter().map(|&a| a.at()).collect();
        let mut statistics = self.statistics.lock().unwrap();
        statistics.kernels.entry(kernel).or_default().launches += 1;
        let _running = LIBRARIES.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: `EXPORT` defines the function with this type; the arguments are those of the
        // kernel's parameters.
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
