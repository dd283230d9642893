package wal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// BenchmarkAppendSync measures a batch with its sync on the real disk, with one
// and with three journals at a time. The median is what a mutation waits for.
func BenchmarkAppendSync(b *testing.B) {
	for _, size := range []int{300, 4096, 128 << 10} {
		for _, journals := range []int{1, 3} {
			b.Run(fmt.Sprintf("bytes=%d/journals=%d", size, journals), func(b *testing.B) {
				benchAppendSync(b, size, journals)
			})
		}
	}
}

func benchAppendSync(b *testing.B, size, journals int) {
	dir := b.TempDir()
	var open []*Journal
	for i := range journals {
		cfg := Config{FS: disk.OS(), Dir: fmt.Sprintf("%s/%d", dir, i), Rand: rand.New(rand.NewPCG(1, uint64(i)))}
		open = append(open, createOpen(b, cfg))
	}
	data := make([]byte, size)
	times := make([][]time.Duration, journals)
	b.SetBytes(int64(size * journals))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, j := range open {
		wg.Go(func() {
			for n := range b.N {
				e := []*pb.Entry{entry(uint64(n)+1, 1, "")}
				e[0].Data = data
				start := time.Now()
				check(b, j.Append(nil, e))
				check(b, j.Sync())
				times[i] = append(times[i], time.Since(start))
				if n%500 == 499 {
					check(b, j.Trim(uint64(n)))
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(times...)
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "us_p50")
	b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "us_p99")
}

// BenchmarkEncode is what a batch costs the processor.
func BenchmarkEncode(b *testing.B) {
	j := createOpen(b, Config{FS: nullFS{disk.NewMem(1)}, Dir: "/j", Rand: rand.New(rand.NewPCG(1, 1))})
	e := []*pb.Entry{entry(1, 1, string(make([]byte, 128<<10)))}
	b.SetBytes(128 << 10)
	b.ReportAllocs()
	for b.Loop() {
		check(b, j.Append(nil, e))
		check(b, j.Sync())
	}
}

// nullFS takes writes and forgets them.
type nullFS struct{ disk.FS }

func (n nullFS) OpenDirect(path string) (disk.File, error) {
	f, err := n.FS.OpenDirect(path)
	return nullFile{f}, err
}

type nullFile struct{ disk.File }

func (f nullFile) WriteAt(b []byte, off int64) (int, error) {
	if off > firstBlock*blockSize {
		return len(b), nil
	}
	return f.File.WriteAt(b, off)
}

func (nullFile) SyncData() error { return nil }
