# Zig from PyPI: pip install ziglang
ZIG ?= python3 -m ziglang

NAME.wasm: NAME.zig sluice.zig
	$(ZIG) build-exe -target wasm32-freestanding -mcpu mvp -O ReleaseSmall -fno-entry -rdynamic \
		--stack 8192 -femit-bin=$@ NAME.zig

TESTS
