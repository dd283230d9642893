package devtest

import (
	"net"
	"os"
	"testing"
)

// FreeAddr returns an address of this machine on which nobody listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Fill writes a file until that fails, and returns how many MiB it has and why it
// has no more.
func Fill(path string) (mib int, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close() // the write's error is what counts
	for piece := make([]byte, 1<<20); ; mib++ {
		if _, err := f.Write(piece); err != nil {
			return mib, err
		}
	}
}
