package kill

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// recordBytes is the size of a record that tells who appended it and as which.
const recordBytes = 64

func record(writer string, n int) []byte {
	rec := bytes.Repeat([]byte{'.'}, recordBytes)
	copy(rec, fmt.Sprintf("%s %d ", writer, n))
	rec[recordBytes-1] = '\n'
	return rec
}

// Appenders open their file again, and sync it, once in a while.
const (
	reopenEvery = 32
	syncEvery   = 8
)

// appender appends records to a file that hands of both mounts append to.
func appender(r *round, h *hand, file int) work {
	fd := -1
	path := r.path("log-%d", file)
	return func(n int) (err error) {
		if fd < 0 {
			if fd, err = h.open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT); err != nil {
				return err
			}
		}
		if err := h.write(fd, record(h.name, n), -1); err != nil {
			return err
		}
		r.records.Store(h.name, n+1)
		if n%syncEvery == syncEvery-1 {
			if err := h.fsync(fd); err != nil {
				return err
			}
		}
		if n%reopenEvery == reopenEvery-1 || r.stopping.Load() {
			err = h.close(fd)
			fd = -1
		}
		return err
	}
}

// verifyRecords wants every record that was appended once and in its writer's
// order, as seen through one mount.
func (r *round) verifyRecords(mount string) {
	next := map[string]int{}
	for file := range 2 {
		path := r.path("log-%d", file)
		data, err := os.ReadFile(filepath.Join(mount, path))
		if err != nil {
			r.fail(fmt.Errorf("verify %s: %w", path, err))
			return
		}
		for i := 0; len(data) > 0; i++ {
			n := min(len(data), recordBytes)
			if err := checkRecord(next, data[:n]); err != nil {
				r.fail(fmt.Errorf("%s, record %d: %w", filepath.Join(mount, path), i, err))
				return
			}
			data = data[n:]
		}
	}
	r.records.Range(func(writer, n any) bool {
		if next[writer.(string)] != n {
			r.fail(fmt.Errorf("%s: %s has %d records, appended were %d", mount, writer, next[writer.(string)], n))
		}
		return true
	})
}

func checkRecord(next map[string]int, rec []byte) error {
	f := strings.Fields(string(rec))
	if len(f) != 3 || len(rec) != recordBytes {
		return fmt.Errorf("%q is none", rec)
	}
	n, err := strconv.Atoi(f[1])
	if err != nil || !bytes.Equal(rec, record(f[0], n)) {
		return fmt.Errorf("%q is none", rec)
	}
	if n != next[f[0]] {
		return fmt.Errorf("%s appends its %d. where its %d. comes", f[0], n, next[f[0]])
	}
	next[f[0]]++
	return nil
}
