package tree_test

import (
	"fmt"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// bench applies one operation an entry.
type bench struct {
	*testing.B
	t     *tree.Tree
	index uint64
	seq   uint64
}

func newBench(b *testing.B) *bench {
	tr, err := tree.Open(tree.Config{FS: disk.OS(), Dir: b.TempDir(), Log: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tr.Close() })
	x := &bench{B: b, t: tr}
	x.entry(fsop.Item{Op: &fsop.OpenSession{}})
	return x
}

func (b *bench) entry(items ...fsop.Item) []tree.Result {
	b.index++
	res, err := b.t.Apply(b.index, 1, &fsop.Entry{Stamp: fsop.Time{Sec: int64(b.index)}, Items: items})
	if err != nil {
		b.Fatal(err)
	}
	return res
}

func (b *bench) item(op fsop.Op) fsop.Item {
	b.seq++
	return fsop.Item{Session: 1, Seq: b.seq, Ack: b.seq - 1, Op: op}
}

func (b *bench) do(op fsop.Op) *fsop.Reply { return b.entry(b.item(op))[0].Reply }

func create(i int) *fsop.Create {
	return &fsop.Create{Parent: fsop.Root, Name: fmt.Appendf(nil, "file-%d", i), Mode: fsop.TypeFile | 0o644, Excl: true}
}

func BenchmarkApplyCreate(b *testing.B) {
	x := newBench(b)
	for i := 0; b.Loop(); i++ {
		x.do(create(i))
	}
}

func BenchmarkApplyCreateBatch8(b *testing.B) {
	x := newBench(b)
	for i := 0; b.Loop(); i++ {
		var items []fsop.Item
		for j := range 8 {
			items = append(items, x.item(create(8*i+j)))
		}
		x.entry(items...)
	}
}

func BenchmarkApplyCreate4K(b *testing.B) {
	x := newBench(b)
	data := make([]byte, 4096)
	for i := 0; b.Loop(); i++ {
		ino := x.do(create(i)).Attrs[0].Ino
		x.do(&fsop.Write{Ino: ino, Data: data})
	}
}

func benchmarkWrite(b *testing.B, size int, random bool) {
	x := newBench(b)
	ino := x.do(create(0)).Attrs[0].Ino
	data := make([]byte, size)
	d := dice(1)
	for i := range data {
		data[i] = byte(d.next())
	}
	const span = 64 << 20
	for off := 0; off < span; off += 1 << 20 {
		x.do(&fsop.Write{Ino: ino, Offset: uint64(off), Data: make([]byte, 1<<20)})
	}
	b.SetBytes(int64(size))
	for i := 0; b.Loop(); i++ {
		off := uint64(i*size) % span
		if random {
			off = d.below(span/4096-uint64(size/4096)) * 4096
		}
		x.do(&fsop.Write{Ino: ino, Offset: off, Data: data})
	}
}

func BenchmarkApplyWrite4KRandom(b *testing.B) { benchmarkWrite(b, 4096, true) }
func BenchmarkApplyWrite128K(b *testing.B)     { benchmarkWrite(b, 128<<10, false) }

func BenchmarkApplyAppend100(b *testing.B) {
	x := newBench(b)
	ino := x.do(create(0)).Attrs[0].Ino
	data := make([]byte, 100)
	for b.Loop() {
		x.do(&fsop.Write{Ino: ino, Append: true, Data: data})
	}
}

func BenchmarkReadLookup(b *testing.B) {
	x := newBench(b)
	for i := range 10_000 {
		x.do(create(i))
	}
	d := dice(1)
	for b.Loop() {
		read1(b, x.t, &fsop.Lookup{Parent: fsop.Root, Name: fmt.Appendf(nil, "file-%d", d.below(10_000))})
	}
}

func BenchmarkReadAttr(b *testing.B) {
	x := newBench(b)
	ino := x.do(create(0)).Attrs[0].Ino
	for b.Loop() {
		read1(b, x.t, &fsop.GetAttr{Ino: ino})
	}
}

func benchmarkRead(b *testing.B, size int) {
	x := newBench(b)
	ino := x.do(create(0)).Attrs[0].Ino
	const span = 64 << 20
	for off := 0; off < span; off += 1 << 20 {
		x.do(&fsop.Write{Ino: ino, Offset: uint64(off), Data: make([]byte, 1<<20)})
	}
	d := dice(1)
	b.SetBytes(int64(size))
	for b.Loop() {
		read1(b, x.t, &fsop.Read{Ino: ino, Offset: d.below(span/4096-uint64(size/4096)) * 4096, Length: uint32(size)})
	}
}

func BenchmarkRead4K(b *testing.B) { benchmarkRead(b, 4096) }
func BenchmarkRead1M(b *testing.B) { benchmarkRead(b, 1<<20) }

func read1(b *testing.B, tr *tree.Tree, op fsop.Op) {
	r, err := tr.Read(b.Context(), op)
	if err != nil || r.Errno != 0 {
		b.Fatal(err, r)
	}
}

// BenchmarkApplyPublish replaces a file by a new one under a temporary name,
// always the same two.
func BenchmarkApplyPublish(b *testing.B) {
	x := newBench(b)
	for b.Loop() {
		x.do(&fsop.Create{Parent: fsop.Root, Name: []byte("tmp"), Mode: fsop.TypeFile | 0o644, Excl: true})
		r := x.do(mv(fsop.Root, "tmp", fsop.Root, "final", 0))
		if len(r.Attrs) == 3 {
			x.entry(fsop.Item{Op: &fsop.Reap{Inos: []fsop.Ino{r.Attrs[2].Ino}}})
		}
	}
}
