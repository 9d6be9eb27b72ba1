# One entry point for people and for CI: `make help`.

CARGO  ?= cargo
RUNS   ?= runs
FUZZ   ?= 60
# The inputs of proptest, which without it differ from run to run: `make test-rust SEED=7`.
SEED   := 81
# The seed of the inputs of the fuzzers that are new in each run, from the batch FUZZ_BATCH on with `make fuzz`.
FUZZ_SEED  := $(shell date +%s)
FUZZ_BATCH := 0
SOAK   ?= 1h
VENV   := .venv/bin
SLUICE := target/release/sluice
WEB    := web/dist/report.html
FIRST  := scenarios/first-light.toml
SITE   := target/site
MDBOOK := target/tools/bin/mdbook
# All calls that test choose the same packages: another choice has other features of the dependencies,
# and compiles everything again.
ALL    := --locked --workspace --exclude sluice-py
XTASK  := target/debug/xtask
# The command and xtask, as the tests build them: `--test` adds the features of test dependencies.
DEBUG  := $(CARGO) build $(ALL) -q --bins --test reference
RUST   := $(shell git ls-files -co --exclude-standard '*.rs')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo build dist docs test lint fmt bench bench-queues bench-simulator bench-recorded bench-python bench-ns3 bench-path bench-routers golden fuzz soak test-rust test-models test-live-and-models test-bridges test-routers test-all test-accuracy test-programs test-kernels test-errors test-claims kernels test-golden test-contributing test-modules test-live test-agreement sanitize test-web test-python test-report test-exports test-docs test-dist test-action test-miri reproduction reproduction-sim forwarders clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

demo: build ## build everything and run the first scenario, simulated and, with privileges, live
	@backend=sim; \
	if $(SLUICE) run $(FIRST) --backend live --check; then backend=both; \
	else echo "simulated only: this machine or user cannot run live"; fi; \
	$(SLUICE) run $(FIRST) --backend $$backend -o $(RUNS)/first-light

build: $(WEB) ## build the sluice command (target/release/sluice)
	$(CARGO) build --release --locked -p sluice-cli

$(WEB): $(shell git ls-files -co --exclude-standard web | grep -v '^web/test')
	@scripts/setup.sh web
	cd web && npm run --silent build

dist: $(WEB) ## build the packages in target/dist: a tarball, a Debian package and a wheel
	scripts/dist.sh

test-dist: dist ## run the packages in bare root file systems and in a new Python environment
	scripts/test-dist.sh

test: lint test-rust test-golden test-claims test-contributing test-modules test-live-and-models test-links test-web test-python test-report test-exports test-docs test-action ## everything that CI runs: lint, unit, property, golden, claims, live, models, Miri, links, web, Python, report, exports, docs, action

test-all: test test-dist test-agreement test-accuracy test-programs test-kernels test-errors ## everything that CI runs, and longer tests: packages, ten links, real programs, real kernels, all errors of system calls, a sweep of 1000 runs on every executor
	$(VENV)/maturin develop -q --profile quick
	$(VENV)/python bench/python/measure.py

test-rust: $(WEB) ## unit, property and documentation tests
	@echo "test-rust: the new inputs of the fuzzers are those of FUZZ_SEED=$(FUZZ_SEED)"
	SLUICE_FUZZ_SECONDS=10 SLUICE_FUZZ_NEW=$(FUZZ_SEED) PROPTEST_RNG_SEED=$(SEED) $(CARGO) test $(ALL) -q

soak: build ## disturb a router for SOAK=1h, and a quarter more with steps of its clock, check books and memory; artifacts/soak
	@scripts/setup.sh python iperf3
	$(VENV)/python bench/forwarders/soak.py $(SLUICE) --time $(SOAK) -o artifacts/soak

fuzz: $(WEB) ## change frames, netlink and nfqueue messages, run.json, scenarios and Parquet at random, FUZZ=60 seconds each, on stable Rust
	SLUICE_FUZZ_SECONDS=$(FUZZ) SLUICE_FUZZ_SEED=$(FUZZ_SEED) SLUICE_FUZZ_BATCH=$(FUZZ_BATCH) $(CARGO) test $(ALL) --lib --test hostile --test fuzz change

test-models: ## try every order of the steps of threads that share no lock (loom)
	$(IDLY) $(CARGO) test --locked -q --manifest-path models/Cargo.toml --target-dir target/models

test-contributing: $(WEB) ## build and check all examples of CONTRIBUTING.md in one copy of the source
	$(DEBUG)
	$(XTASK) contributing

test-modules: ## compile the modules of sdk/ with clang, rustc and Zig, and compare them with the algorithms of core
	@scripts/setup.sh wasm
	$(CARGO) test --locked -q --manifest-path sdk/rust/Cargo.toml --target-dir target/sdk
	$(CARGO) test $(ALL) --test sdk --test modules -q

test-golden: $(WEB) ## simulate every scenario and compare the figures with scenarios/golden; also check optimised code
	$(CARGO) test $(ALL) --test golden -q
	$(CARGO) test --profile quick --locked -p sluice-sim --test network the_run_of_a_seed_is_what_it_was -q

test-errors: $(WEB) ## let every system call of crates/net fail with each of six errors, and not with two of them as test-rust does (root)
	SLUICE_EVERY_ERROR=1 $(CARGO) test $(ALL) --test injected --test processes -q

test-kernels: $(WEB) ## replay traces and compare every packet with real kernels
	$(DEBUG)
	$(XTASK) kernels

test-claims: test-golden ## check the statements of docs/reproduction.toml with the runs of test-golden, and some decisions of real kernels
	$(DEBUG)
	$(XTASK) reproduce docs/reproduction.toml --runs target/tmp/golden/seeds --check
	$(XTASK) kernels --quick

kernels: $(WEB) ## compare every packet and every run with real kernels, and write docs/explanation/kernels.md
	$(DEBUG)
	$(XTASK) kernels --page docs/explanation/kernels.md

golden: $(WEB) ## rewrite scenarios/golden; the changelog must then give the reason
	UPDATE_EXPECT=1 $(CARGO) test $(ALL) --test golden -q -- --nocapture

# Live tests mostly wait. The others take the processor only when nothing else wants it, and have their own target
# folders, so that no cargo waits for another. Nothing runs beside bridges, whose gaps are milliseconds.
test-live-and-models: test-bridges
	@$(MAKE) --no-print-directory IDLY="chrt --idle 0" test-models test-miri & idle=$$!; trap "kill $$idle" INT TERM; \
	$(MAKE) --no-print-directory test-routers; live=$$?; wait $$idle || exit; exit $$live

test-live: test-bridges test-routers ## live runs, each in its own namespaces, and the systemd unit under a systemd of its own

test-bridges: $(WEB)
	@scripts/setup.sh programs
	$(CARGO) test $(ALL) --test bridge --test attach --test faults --test jumbo --test memory -q -- --test-threads 1

test-routers: $(WEB)
	@scripts/setup.sh programs
	$(CARGO) test $(ALL) --test exec --test forward --test live --test programs --test router -q -- --test-threads 1
	$(CARGO) test $(ALL) --test overload -q
	@scripts/setup.sh systemd
	$(DEBUG)
	scripts/test-unit.py target/debug/sluice

test-links: $(WEB) ## rate and idle round trip of ten named links under sluice exec, 5 s each way; 1 minute
	@scripts/setup.sh iperf3
	$(DEBUG)
	scripts/accuracy.py target/debug/sluice --seconds 5 --jobs 3

test-accuracy: build ## rate and idle round trip of ten named links under sluice exec, 10 s each way; 5 minutes
	@scripts/setup.sh iperf3
	scripts/accuracy.py $(SLUICE)

test-programs: build ## curl, pip, npm, git, a browser, WebSocket, HTTP/2, UDP under sluice exec, as an ordinary user
	@scripts/setup.sh web chromium clients
	scripts/test-programs.py $(SLUICE)

test-agreement: ## compare exec with and without namespaces on all kinds of links (30 minutes)
	$(CARGO) build --locked --profile quick -q -p sluice-cli
	bench/proxy/agreement.py target/quick/sluice wpt/3g-fast devtools/slow-4g dsl cable lte fiber geo --check
	@# 4 s end before BBR's ProbeRTT, 8 s do not: docs/explanation/accuracy.md
	bench/proxy/agreement.py target/quick/sluice geo --cc bbr --seconds 4 --check
	bench/proxy/agreement.py target/quick/sluice starlink geo --cc bbr --check

sanitize: ## AddressSanitizer over ports and frames, live (root), and Miri over code without system calls; 2 GB in target/asan, target/miri
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address $(CARGO) test --locked -q -p sluice-wire -p sluice-net -p sluice-load -p sluice-router \
		--target x86_64-unknown-linux-gnu --target-dir target/asan \
		--lib --test ports --test xdp --test nfqueue --test forward --test hostile --test pcap --test faults -- --test-threads 1
	@scripts/setup.sh miri
	$(RUN_MIRI) -p sluice-wire -p sluice-net --lib -- $(MIRI)

test-miri: ## the code around `unsafe` in crates/net under Miri; where no nightly Rust can be installed, an error for root and with CI set, else a warning
	@if scripts/setup.sh miri; then $(RUN_MIRI) -p sluice-net --lib -- $(MIRI_SHORT); \
	else \
		echo "test-miri: *** NOT RUN *** Miri needs rustup and a nightly Rust, which could not be installed (see above)" >&2; \
		[ -n "$(WITHOUT_MIRI)" ] || { [ -z "$$CI" ] && [ "$$(id -u)" != 0 ]; } || \
			{ echo "test-miri: root and CI must run it, or say that they do not: make WITHOUT_MIRI=1" >&2; exit 1; }; \
	fi

# Frames, and the code around `unsafe` in crates/net that makes no system call except mmap. The test of all
# 2^23 headers would take days.
MIRI = frame:: port::pool:: port::trains:: port::xdp::ring:: port::packet::ring:: port::nfqueue::message:: \
	--skip ce_matches_recomputation_for_every_word_and_checksum --skip any_bytes_end_the_reading
# Those of `unsafe` that take seconds; the others take many minutes.
MIRI_SHORT = port::pool::tests:: port::pool::account:: port::pool::carried:: port::xdp::ring:: port::packet::ring:: \
	port::nfqueue::message:: --skip any_bytes_end_the_reading --skip one_account_leaves --skip a_slot_that_the_kernel_has
RUN_MIRI = MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 $(IDLY) $(CARGO) +nightly-2026-05-20 miri test --locked -q \
	--target-dir target/miri

test-action: $(WEB) ## execute the action for CI services and its example workflow on this machine
	@scripts/setup.sh python programs
	$(DEBUG)
	$(VENV)/python scripts/test-action.py target/debug/sluice

test-web: $(WEB) ## the report's own tests
	cd web && npm test --silent

test-python: $(WEB) ## the Python package and its examples
	@scripts/setup.sh python mininet
	$(VENV)/maturin develop -q
	$(VENV)/stubtest sluice._sluice --concise --ignore-disjoint-bases --mypy-config-file pyproject.toml
	$(VENV)/pytest -q --doctest-modules python

test-report: $(WEB) ## a real report and the page of a live run in headless Chromium; keeps artifacts/*.png
	@scripts/setup.sh web chromium
	cd web && npm run --silent test:browser
	cd web && npm run --silent screenshot -- ../artifacts/first-light/report.html --out ../artifacts/first-light
	$(DEBUG)
	cd web && node test/served.mjs ../target/debug/sluice

test-exports: $(WEB) ## flent and tshark read the exported files; keeps artifacts/exports/*.png
	@scripts/setup.sh tshark flent
	$(DEBUG)
	scripts/test-exports.sh target/debug/sluice

docs: ## build the documentation site (target/site); needs no network once mdBook is built
	@scripts/setup.sh docs
	@rm -rf $(SITE)
	MDBOOK_LOG=warn $(MDBOOK) build
	@python3 scripts/check-site.py $(SITE)

test-docs: docs $(WEB) ## check the site's links, and that tutorials and guides work as printed
	$(DEBUG)
	$(XTASK) tutorials

lint: $(WEB) ## formatters, linters, the layer check, licences, sources, duplicates and advisories of dependencies, and the systemd unit
	@scripts/setup.sh web python
	@echo "rustfmt --check"; rustfmt --edition 2024 --check $(RUST)
	$(CARGO) clippy --locked --workspace --all-targets -q -- -D warnings
	$(DEBUG)
	$(XTASK) layers
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps -q
	cd web && npm run --silent lint
	$(VENV)/ruff check -q python bench examples scripts sdk && $(VENV)/ruff format -q --check python bench examples scripts sdk
	$(VENV)/mypy --no-error-summary
	scripts/check-english.py
	scripts/check-dependencies.py
	scripts/check-setup.sh
	@scripts/setup.sh systemd
	scripts/check-unit.sh target/debug/sluice

fmt: ## format everything
	@scripts/setup.sh web python
	@rustfmt --edition 2024 $(RUST)
	cd web && npm run --silent fmt
	$(VENV)/ruff check -q --fix python bench examples scripts sdk && $(VENV)/ruff format -q python bench examples scripts sdk

reproduction: build ## run the published experiments on both backends and make docs/reproduction.md; over two hours, an idle machine
	-$(SLUICE) run scenarios/seeds --repeat 5 -o $(RUNS)/seeds
	-$(SLUICE) run scenarios/seeds --backend both -o $(RUNS)/seeds
	-$(SLUICE) run scenarios/seeds/002-1-changing-rate.toml --backend both --repeat 5 -o $(RUNS)/seeds/002-1-changing-rate
	-$(SLUICE) run scenarios/codel-paper/figure-7.toml --repeat 5 -o $(RUNS)/codel-paper/figure-7
	-$(SLUICE) run scenarios/codel-paper/figure-7.toml --backend both -o $(RUNS)/codel-paper/figure-7
	$(MAKE) forwarders
	$(CARGO) xtask reproduce docs/reproduction.toml --runs $(RUNS)/seeds --keep
	$(CARGO) xtask reproduce docs/reproduction.toml --runs $(RUNS)/seeds -o docs/reproduction.md

reproduction-sim: build ## make the same page with new simulations, and the live runs in runs/seeds or those that are kept
	-$(SLUICE) run scenarios/seeds --repeat 5 -o $(RUNS)/seeds
	-$(SLUICE) run scenarios/codel-paper/figure-7.toml --repeat 5 -o $(RUNS)/codel-paper/figure-7
	$(CARGO) xtask reproduce docs/reproduction.toml --runs $(RUNS)/seeds -o docs/reproduction.md

forwarders: build ## measure forwarders in C, Go, Python and Rust beside the kernel and Sluice; 4 minutes, an idle machine
	@scripts/setup.sh iperf3 python
	$(VENV)/python bench/forwarders/measure.py $(SLUICE) -o docs/reproduction --chart docs/images/reproduction/003-forwarding.png

bench: build ## run the benchmarks, each with a reference measured at the same time; an idle machine, 50 minutes
	@# One that misses its bound does not end the others.
	@$(MAKE) --no-print-directory --keep-going bench-queues bench-simulator bench-recorded bench-python bench-ns3 bench-path bench-routers

bench-queues: ## nanoseconds per packet of all queues, and of rules and pipes by their number
	$(CARGO) bench --locked -q -p sluice-core --bench queues
	$(CARGO) bench --locked -q -p sluice-ipfw --bench scale

bench-simulator: ## nanoseconds per event, and what recordings and reports add to a simulation
	$(CARGO) run --release --locked -q -p sluice-sim --example speed
	$(CARGO) run --release --locked -q -p sluice-cli --example recording

bench-recorded: ## lateness of packets with and without a recording
	$(CARGO) run --release --locked -q -p sluice-lab --example recorded_lateness

bench-python: ## decisions per second of AQMs in Python and WebAssembly, and the rate of a live queue in Python
	@scripts/setup.sh python wasm
	$(VENV)/maturin develop -q --release
	clang --target=wasm32 -O2 -nostdlib -fno-builtin -Wl,--no-entry,--stack-first,-z,stack-size=8192 -I sdk/c \
		-o target/codel.wasm sdk/examples/codel.c
	$(VENV)/python bench/decisions.py target/codel.wasm
	$(VENV)/python bench/live_rate.py

bench-ns3: build ## time of the same dumbbells in ns-3
	@scripts/setup.sh ns3
	$(CARGO) build --release --locked -q -p sluice-sim --example speed
	.venv-ns3/bin/python bench/ns3/compare.py .venv-ns3/bin/python target/release/examples/speed $(SLUICE)

bench-path: build ## the packet path beside the kernel's
	$(SLUICE) bench

bench-routers: build ## whole programs, by their command lines: exec, routers, watched, shaping, attacked
	@scripts/setup.sh iperf3
	bench/exec.py $(SLUICE)
	bench/forwarders/routers.py $(SLUICE)
	bench/forwarders/watching.py $(SLUICE)
	bench/forwarders/shaping.py $(SLUICE)
	bench/forwarders/strangers.py $(SLUICE)

clean: ## remove all build output
	rm -rf target web/dist web/node_modules .venv .venv-flent .venv-mininet artifacts
