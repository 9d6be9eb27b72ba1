RUSTC ?= rustc
# The target: rustup target add wasm32-unknown-unknown (Debian: rustc and libstd-rust-dev-wasm32)
NAME.wasm: NAME.rs sluice.rs
	$(RUSTC) --edition 2021 --target wasm32-unknown-unknown -O -C panic=abort --crate-type cdylib \
		-C link-args=-zstack-size=8192 -C link-args=--stack-first -C strip=symbols -o $@ NAME.rs

TESTS
