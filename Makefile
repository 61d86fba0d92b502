# What people type. `.ci/run` calls the same targets.

PYTHON ?= python3
# Tools and tests of the Python side live in a virtual environment of their own.
VENV ?= .venv
# Seconds for each fuzz target in `make fuzz-smoke`.
FUZZ_SECONDS ?= 20

# The toolchain of Miri, of fuzzing and of coverage.
NIGHTLY ?= nightly
# Reads licences, sources and advisories of what is depended on; built once, without optimisation.
DENY_VERSION := 0.20.2
DENY := target/tools/bin/cargo-deny

BIN := $(VENV)/bin
# Installs packages of Python in a tenth of pip's time.
UV_VERSION := 0.13.9
INSTALL := $(BIN)/uv pip install -q --python
# The processors that `make wheels` builds for.
WHEELS ?= x86_64 aarch64
# What runs what was built and looks at what it does, ...
TESTS := test-rust assurance test-python
# ... and with the wheel, and all that reads or compiles only; `.ci/run` goes through this list and times it.
CHECKS := fmt-check deny test-rust assurance test-python lint-rust doc miri check-cuda check-deploy lint-python site python test-wheel
# Everything that is written in Python.
PYTHON_SOURCES := python examples docs scripts benches notebooks deploy

.PHONY: help demo demo-train build test check checks assurance assurance-all test-rust test-python chaos lint lint-rust lint-python doc fmt fmt-check check-cuda check-deploy bench-gpu paper-tables python wheels site test-wheel \
	fuzz-smoke deny miri coverage clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Build, and run a private LeNet on handwritten digits: three processes on this machine.
	cargo run --release --locked -p megrez-cli -- demo

demo-train: ## Build, and have a LeNet trained for two owners of digits, by three processes on this machine.
	cargo run --release --locked -p megrez-cli -- demo-train --activations lookup

build: ## Build the `megrez` command with optimisation.
	cargo build --release --locked -p megrez-cli

test: $(TESTS) ## Run all tests: of Rust, of Python, that no plan leaks, the demo.

check: $(CHECKS) ## Everything that .ci/run checks: tests, and formats, licences, lints, kernels, manifests, the site.

checks:
	@echo $(CHECKS)

# Tests of parties wait for each other, and for those who never come: more run at a time than there are cores. Of each
# of two programs:
THREADS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$(( n < 3 ? 3 : n )))

# All tests run what is built once: of one profile, and of one choice of features, which is that of the whole workspace.
ONCE := --profile once --workspace --locked
BUILT := $${CARGO_TARGET_DIR:-target}/once

# All that has tests; not the programs in the examples of crates, which clippy compiles.
test-rust: ## Run the tests of all crates, documentation examples included.
	RUST_TEST_THREADS=$(THREADS) python3 scripts/tests.py $(ONCE)
	cargo test $(ONCE) --doc

# As tests build it: `cargo run` would build all that it stands on with other features.
assurance: ## Have machines check that no plan leaks: a part, within minutes.
	cargo test $(ONCE) --no-run --test masks
	$(BUILT)/megrez-assurance

assurance-all: ## The same, whole: 10,000 random plans, all networks, all mutants, exact views.
	cargo run --release --locked --bin megrez-assurance -- --plans 1500 --mutants all --zoo all --views 16

deny: $(DENY) ## Check licences and sources of all dependencies, and advisories where their database can be had.
	$(DENY) --locked check bans licenses sources
	@if $(DENY) fetch db 2>/dev/null; then $(DENY) --locked check advisories; \
	else echo "the database of advisories cannot be had from here: they are not checked"; fi

$(DENY):
	CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0 \
		cargo install --debug --locked --quiet --root target/tools --version $(DENY_VERSION) cargo-deny

# Slow, so sizes are sampled (`cfg(miri)`), crates above these run natively only, and two run side by side: a test of
# Miri takes one core.
miri: ## Run the tests of rings, streams and sessions under Miri, which finds undefined behaviour; needs nightly's miri.
	export MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 PROPTEST_DISABLE_FAILURE_PERSISTENCE=1; \
	cargo +$(NIGHTLY) miri test --locked --lib -p megrez-prg & beside=$$!; \
	cargo +$(NIGHTLY) miri test --locked --lib -p megrez-ring -p megrez-session; others=$$?; \
	wait $$beside && exit $$others

# By hand: it builds everything a second time. COVERAGE says of which crates.
COVERAGE ?= --workspace
coverage: ## Measure which lines the tests of Rust run; needs cargo-llvm-cov and nightly's llvm-tools.
	cargo +$(NIGHTLY) llvm-cov --locked $(COVERAGE) --summary-only

# The sources of the package, and beside them the module as the tests of Rust build it. Notebooks train for minutes, and
# run with the wheel.
test-python: $(VENV)/tests ## Run the tests of the Python package.
	cargo build $(ONCE) --example native
	rm -rf target/package
	mkdir -p target/package
	cp -r python/megrez target/package
	cp $(BUILT)/examples/libnative.so target/package/megrez/_native.abi3.so
	PYTHONPATH=$(abspath target/package) $(BIN)/python -m pytest -q -n 2 python/tests --ignore python/tests/test_notebooks.py

# Longer on a machine that has the time: MINUTES=120.
MINUTES ?= 5
SEED ?= 1
chaos: build python ## Break a deployment for five minutes (MINUTES, SEED), and look whether it holds.
	$(BIN)/python scripts/chaos/run.py --megrez target/release/megrez --minutes $(MINUTES) --seed $(SEED)

lint: lint-rust lint-python doc ## Run all linters; warnings are errors.

# Fuzz targets run by hand only, and compile always.
lint-rust:
	cargo clippy $(ONCE) --all-targets -- -D warnings
	cargo check --quiet --manifest-path fuzz/Cargo.toml --target-dir $${CARGO_TARGET_DIR:-target}

# mypy looks into the packages that the sources import, so they must be there.
lint-python: $(VENV)/tools $(VENV)/tests
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/mypy

doc: ## Build the API documentation; warnings are errors.
	RUSTDOCFLAGS="-D warnings" cargo doc $(ONCE) --no-deps

site: $(VENV)/site ## Build the documentation site into target/site; warnings are errors.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fmt: $(VENV)/tools ## Format all sources.
	cargo fmt --all
	python3 scripts/wrap.py
	$(BIN)/ruff format $(PYTHON_SOURCES)

fmt-check: ## Check formats, and that no imports go round in circles.
	cargo fmt --all --check
	python3 scripts/wrap.py --check
	python3 scripts/circles.py

check-cuda: ## Compile every CUDA kernel for sm_80 and sm_90; needs no GPU.
	sh crates/megrez-cuda/check.sh sm_80 sm_90

check-deploy: target/tools/deploy ## Check Dockerfile, manifests and unit; needs systemd-analyze, and no engine.
	sh deploy/check.sh target/tools/deploy

target/tools/deploy: deploy/requirements.txt | $(BIN)/uv
	$(PYTHON) -m venv $@
	$(INSTALL) $@/bin/python -r deploy/requirements.txt
	touch $@

bench-gpu: ## Check and measure everything on this machine's GPU; writes gpu.json.
	$(PYTHON) benches/gpu.py --output gpu.json

paper-tables: ## Run the papers' tables with the installed wheel, and judge their claims; writes target/papers.
	$(BIN)/python benches/papers.py

python: $(VENV)/tools $(VENV)/tests ## Build this machine's wheel, check it, and install it into the virtual environment.
	$(BIN)/python scripts/wheels.py
	$(INSTALL) $(BIN)/python --reinstall --no-deps target/wheels/*_$$(uname -m).whl

wheels: $(VENV)/tools ## Build what a release has, in target/wheels: a wheel for each processor, checked, and the sources.
	$(BIN)/python scripts/wheels.py $(WHEELS)
	$(BIN)/maturin sdist --out target/wheels
	cd target/wheels && sha256sum *.whl *.tar.gz > SHA256SUMS

# What is installed needs nothing of this repository.
test-wheel: python ## Run what was installed of the wheel: the demo, notebooks, and the tests of how models are run.
	mkdir -p target/empty
	cd target/empty && $(abspath $(BIN))/megrez demo
	$(BIN)/python -m pytest -q -n 2 $(addprefix python/tests/test_,package.py run.py notebooks.py)

fuzz-smoke: ## Run every fuzz target for a moment; needs the nightly toolchain and cargo-fuzz.
	for target in $$(cargo +$(NIGHTLY) fuzz list); do \
		cargo +$(NIGHTLY) fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 || exit 1; \
	done

clean: ## Remove everything that was built.
	cargo clean
	rm -rf $(VENV) fuzz/target fuzz/corpus fuzz/artifacts

$(VENV)/site: docs/requirements.txt | $(BIN)/uv
	$(INSTALL) $(BIN)/python -r docs/requirements.txt
	touch $@

$(VENV)/tests: python/requirements-test.txt | $(BIN)/uv
	$(INSTALL) $(BIN)/python -r python/requirements-test.txt
	touch $@

$(VENV)/tools: .ci/requirements.txt | $(BIN)/uv
	$(INSTALL) $(BIN)/python -r .ci/requirements.txt
	touch $@

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q uv==$(UV_VERSION)
