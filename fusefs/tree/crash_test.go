package tree_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// history is a log and the digest of the state after some of its entries.
type history struct {
	entries []*fsop.Entry
	digests map[uint64][32]byte
}

// newHistory writes a log of n entries: batches of two sessions' streams with
// retries, gaps and stale epochs among them, sessions that come and go, reaping.
func newHistory(t *testing.T, seed uint64, n int) *history {
	h := &history{digests: make(map[uint64][32]byte)}
	tr := openTree(t, disk.NewMem(seed), "reference")
	w := &workload{dice: dice(seed), inos: 1}
	seqs := map[uint64]uint64{}
	var live []uint64
	for i := range n {
		e := &fsop.Entry{Stamp: fsop.Time{Sec: int64(i) / 3}}
		switch {
		case len(live) < 2:
			e.Items = append(e.Items, fsop.Item{Op: &fsop.OpenSession{Nonce: [16]byte{byte(i), byte(i >> 8), 1}, Name: []byte("m")}})
		case w.one(60):
			e.Items = append(e.Items, fsop.Item{Op: &fsop.EvictSession{Session: live[0]}})
			live = live[1:]
		case w.one(25):
			e.Items = append(e.Items, fsop.Item{Op: &fsop.Reap{Inos: tr.Orphans(0, int(1+w.below(8)))}})
		case w.one(100):
			e = nil
		default:
			for range 1 + w.below(4) {
				s := live[w.below(2)]
				seqs[s]++
				it := fsop.Item{Session: s, Seq: seqs[s], Ack: seqs[s] - 1, Op: w.mutation()}
				switch w.below(30) {
				case 0:
					it.Seq, it.Ack = it.Seq-1, 0
					seqs[s]--
				case 1:
					it.Seq++
					seqs[s]--
				case 2:
					it.Epoch++
					seqs[s]--
				}
				e.Items = append(e.Items, it)
			}
		}
		h.entries = append(h.entries, e)
		res, err := tr.Apply(uint64(i+1), 1, e)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res {
			if r.Reply == nil {
				continue
			}
			if r.Reply.Session > 0 {
				live = append(live, r.Reply.Session)
			}
			for _, a := range r.Reply.Attrs {
				w.inos = max(w.inos, uint64(a.Ino)+1)
			}
		}
		if i%50 == 49 || i == n-1 {
			h.digests[uint64(i+1)] = digest(t, tr)
		}
	}
	return h
}

func digest(t *testing.T, tr *tree.Tree) [32]byte {
	t.Helper()
	d, err := tr.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// replay applies the log from where the tree is up to index to, and compares
// digests where the tree is ready: before that checksums are of newer contents.
func (h *history) replay(t *testing.T, tr *tree.Tree, to uint64) {
	t.Helper()
	at, _ := tr.Applied()
	for at < to {
		at++
		if _, err := tr.Apply(at, 1, h.entries[at-1]); err != nil {
			t.Fatal(err)
		}
		if want, ok := h.digests[at]; ok && tr.Ready() && digest(t, tr) != want {
			t.Fatalf("digest at %d differs", at)
		}
	}
}

func checkpoint(t *testing.T, tr *tree.Tree) {
	t.Helper()
	finish, err := tr.BeginCheckpoint([]byte("members"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := finish(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestCrashAnywhere takes what a power cut would leave at random calls to the
// disk while a log is applied and checkpoints are made. From each of them the
// replay must lead to the same state, with contents that match (DESIGN §3,
// CONTRACT C3).
func TestCrashAnywhere(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			crashAnywhere(t, seed)
		})
	}
}

// remains is a disk after a power cut, and how far the journal went then.
type remains struct {
	disk  *disk.Mem
	fence uint64
	when  disk.Call
}

func crashAnywhere(t *testing.T, seed uint64) {
	const n = 500
	h := newHistory(t, seed, n)
	mem := disk.NewMem(seed)
	d := dice(seed + 1000)
	var mu sync.Mutex // the store calls from goroutines of its own
	var cuts []remains
	var applying uint64
	cut := dice(seed + 2000)
	fs := disk.Inject(mem, func(c disk.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if cut.one(40) {
			cuts = append(cuts, remains{mem.CrashClone(disk.Keep(cut.below(3))), applying, c})
		}
		return nil
	})
	tr := openTree(t, fs, "replica")
	var finish func(context.Context) (uint64, error)
	for index := uint64(1); index <= n; index++ {
		mu.Lock()
		applying = index
		mu.Unlock()
		if _, err := tr.Apply(index, 1, h.entries[index-1]); err != nil {
			t.Fatal(err)
		}
		switch {
		case finish != nil && d.one(8):
			if _, err := finish(context.Background()); err != nil {
				t.Fatal(err)
			}
			finish = nil
		case finish == nil && d.one(25):
			var err error
			if finish, err = tr.BeginCheckpoint(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	mu.Lock()
	taken := cuts // the store may go on
	mu.Unlock()
	if len(taken) < 5 {
		t.Fatalf("only %d cuts", len(taken))
	}
	for _, c := range taken {
		recoverFrom(t, h, c, &d)
	}
}

// recoverFrom replays after a power cut; sometimes a second one comes before
// the end.
func recoverFrom(t *testing.T, h *history, c remains, d *dice) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("power cut before %v, fence %d", c.when, c.fence)
		}
	}()
	if d.one(3) {
		tr := openTree(t, c.disk, "replica")
		tr.SetFence(c.fence, 1)
		at, _ := tr.Applied()
		h.replay(t, tr, at+d.below(c.fence+1-at))
		if d.one(2) {
			checkpoint(t, tr)
		}
		c.disk = c.disk.Crash(disk.Keep(d.below(3)))
		tr.Close()
	}
	tr := openTree(t, c.disk, "replica")
	tr.SetFence(c.fence, 1)
	if at, _ := tr.Applied(); at > c.fence {
		t.Fatalf("restored at %d, only %d were applied", at, c.fence)
	}
	end := min(c.fence/50*50+50, uint64(len(h.entries)))
	h.replay(t, tr, end)
	if err := tr.Check(); err != nil {
		t.Fatal(err)
	}
	tr.Close()
}
