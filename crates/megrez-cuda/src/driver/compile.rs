//! NVRTC: from a source to machine code.

use cudarc::nvrtc::{result as nvrtc, sys as nvrtc_sys};
use std::ffi::CString;

/// Compiles to a cubin, or to PTX for the driver to compile.
pub(super) fn compile(source: &str, arch: &str, portable: bool) -> std::result::Result<Vec<u8>, String> {
    let text = CString::new(source).map_err(|e| e.to_string())?;
    let program = nvrtc::create_program(&text, Some(c"megrez.cu")).map_err(|e| e.to_string())?;
    let options = [arch, "--std=c++17"];
    // SAFETY: `program` is alive until it is destroyed at the end; the buffer has the size that
    // NVRTC asks for.
    unsafe {
        let made = nvrtc::compile_program(program, &options);
        let image = made.and_then(|()| {
            if portable {
                return nvrtc::get_ptx(program).map(bytemuck::cast_vec);
            }
            let mut size = 0;
            nvrtc_sys::nvrtcGetCUBINSize(program, &mut size).result()?;
            let mut cubin = vec![0u8; size];
            nvrtc_sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()).result()?;
            Ok(cubin)
        });
        let image = image.map_err(|e| {
            let log = nvrtc::get_program_log(program).unwrap_or_default();
            let log: Vec<u8> = bytemuck::cast_vec(log);
            format!("{e}\n{}", String::from_utf8_lossy(&log).trim_end_matches('\0'))
        });
        let _ = nvrtc::destroy_program(program);
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvrtc_compiles_every_unit() {
        // SAFETY: the question only opens a library by name.
        if !unsafe { nvrtc_sys::is_culib_present() } {
            println!("skipped: NVRTC is not on the library path");
            return;
        }
        for (name, source) in crate::every_unit() {
            for arch in ["sm_80", "sm_90a"] {
                if arch == "sm_80" && name.ends_with("-groups") {
                    continue;
                }
                let image = compile(&source, &format!("--gpu-architecture={arch}"), false);
                assert!(image.is_ok_and(|i| !i.is_empty()), "{name} for {arch}");
            }
        }
    }
}
