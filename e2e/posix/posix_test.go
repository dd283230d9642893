package posix

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLocalControl runs the suite on the local disk: what fails here is wrong
// in the suite.
func TestLocalControl(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	Run(t, Env{Dir: dir, Local: true, Caps: Caps{
		CapBigXattr:  "ext4 keeps the xattrs of an inode in one block",
		CapWideTimes: "ext4 keeps 34 bits of seconds",
	}})
}
