// Forwards every frame between two interfaces over raw sockets, one frame per system call.
// Usage: forward FIRST SECOND THREADS. With one thread, both sockets are polled.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

const ignoreOutgoing = 23 // PACKET_IGNORE_OUTGOING

type pollFd struct {
	fd              int32
	events, revents int16
}

var sockets [2]int

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "forward: %s: %v\n", what, err)
		os.Exit(1)
	}
}

// openRaw opens a socket that receives what arrives at an interface, but not what leaves by it.
func openRaw(name string) int {
	const all = 0x0300 // ETH_P_ALL in network order
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, all)
	check(err, "socket")
	check(syscall.SetsockoptInt(fd, syscall.SOL_PACKET, ignoreOutgoing, 1), "setsockopt")
	device, err := net.InterfaceByName(name)
	check(err, name)
	check(syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all, Ifindex: device.Index}), "bind")
	return fd
}

func forwardOne(from int, frame []byte) {
	length, err := syscall.Read(sockets[from], frame)
	if err == nil && length > 0 {
		// A full queue of the interface drops the frame, as a router's does.
		syscall.Write(sockets[1-from], frame[:length])
	}
}

func oneWay(from int) {
	runtime.LockOSThread()
	frame := make([]byte, 65536)
	for {
		forwardOne(from, frame)
	}
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: forward FIRST SECOND THREADS")
		os.Exit(2)
	}
	for i := range sockets {
		sockets[i] = openRaw(os.Args[1+i])
	}
	if os.Args[3] == "2" {
		go oneWay(1)
		oneWay(0)
	}
	frame := make([]byte, 65536)
	for {
		wanted := [2]pollFd{{fd: int32(sockets[0]), events: 1}, {fd: int32(sockets[1]), events: 1}}
		syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&wanted)), 2, 0, 0, 0, 0)
		for i := range wanted {
			if wanted[i].revents&1 != 0 {
				forwardOne(i, frame)
			}
		}
	}
}
