.PHONY: test
test: NAME.wasm
	sluice check "wasm:NAME.wasm bound 20ms"
	sluice run scenario.toml
