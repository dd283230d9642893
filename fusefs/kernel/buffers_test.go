package kernel

import (
	"os"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestBuffersAreResident looks at the pages of new read buffers: one that is
// not in memory makes the kernel answer EIO when the process is killed while it
// takes a request.
func TestBuffersAreResident(t *testing.T) {
	page := uintptr(os.Getpagesize())
	for range 8 {
		buf := reflect.ValueOf(bazilPool.New()).Elem().FieldByName("buf").Bytes()
		first := uintptr(unsafe.Pointer(&buf[0])) &^ (page - 1)
		size := uintptr(unsafe.Pointer(&buf[0])) + uintptr(len(buf)) - first
		in := make([]byte, (size+page-1)/page)
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, first, size, uintptr(unsafe.Pointer(&in[0]))); errno != 0 {
			t.Fatal(errno)
		}
		for i, b := range in {
			if b&1 == 0 {
				t.Fatalf("page %d of %d is not in memory", i, len(in))
			}
		}
	}
}
