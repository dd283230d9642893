package kernel

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpu is the processor time of this process so far: of the filesystem and the
// caller together, and less disturbed by other processes than the clock.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMount measures system calls on a mount of one tree in memory.
// Everything that is not the filesystem is left out: no network, no log.
func BenchmarkMount(b *testing.B) {
	m, _ := mountTree(b, newOneTree(b))
	file := filepath.Join(m.Dir(), "f")
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	big := make([]byte, maxData)
	run := func(name string, size int, fn func(i int) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			before := cpu()
			for i := range b.N {
				if err := fn(i); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
	run("write1M", len(big), func(int) error { _, err := unix.Pwrite(fd, big, 0); return err })
	run("stat", 0, func(int) error { var st unix.Stat_t; return unix.Stat(file, &st) })
	run("open", 0, func(int) error {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
	run("read1M-direct", len(big), func(int) error {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Pread(fd, big, 0)
		return err
	})
	run("read4k-cached", 4096, func(int) error { _, err := unix.Pread(fd, big[:4096], 0); return err })
	round := 0
	run("create4k", 4096, func(i int) error {
		if i == 0 {
			round++
		}
		fd, err := unix.Open(filepath.Join(m.Dir(), fmt.Sprint(round, "-", i)), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, big[:4096]); err != nil {
			return err
		}
		return unix.Close(fd)
	})
}
