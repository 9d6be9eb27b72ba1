# clang and lld (Debian: the packages of these names)
NAME.wasm: NAME.c sluice.h
	clang --target=wasm32 -O2 -Wall -nostdlib -fno-builtin -mno-bulk-memory \
		-Wl,--no-entry,--stack-first,-z,stack-size=8192 -o $@ NAME.c

TESTS
