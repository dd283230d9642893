package kernel

import (
	"os"
	"reflect"
	"sync"
	_ "unsafe" // for go:linkname
)

// bazilPool makes bazil's read buffers.
//
//go:linkname bazilPool bazil.org/fuse.reqPool
var bazilPool sync.Pool

// bazilNew is what bazil makes a buffer with.
var bazilNew func() any

func init() {
	bazilNew = bazilPool.New
	bazilPool.New = newResident
}

// newResident makes a buffer all of whose pages are in memory. When a process
// is killed, a thread of it may still take a request from the kernel, but no
// page fault of it succeeds any more: the kernel would answer that request with
// EIO instead of keeping it for the next process.
func newResident() any {
	m := bazilNew()
	buf := reflect.ValueOf(m).Elem().FieldByName("buf").Bytes()
	for i := 0; i < len(buf); i += os.Getpagesize() {
		buf[i] = 0
	}
	return m
}
