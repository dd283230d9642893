package damage

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/e2e/volumetest"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/roles/worker"
)

var (
	placesFlag = flag.Int64("damage.places", 1, "how many places of each file are cut and flipped; 0: all")
	filesFlag  = flag.Int("damage.files", 1, "how many files of each kind are damaged; 0: all")
	seedFlag   = flag.Uint64("damage.seed", 1, "which places and files")
)

// victim is the replica whose files are damaged.
const victim = 2

// bench is a volume of which one replica is damaged again and again.
type bench struct {
	*volumetest.Volume
	client *volumetest.Client
	// Copies of the victim's folder: as it was when it ended, as it was before
	// that; the folders of another replica and of another volume's.
	whole, older, foreign, stranger string
	record                          string // copy of the host's record
	bin                             string
	want                            map[string][32]byte // file → sum of its contents
	n                               int
}

func (b *bench) path(rel string) string { return filepath.Join(b.ReplicaDir(victim), rel) }

// newBench fills a volume: many small files, files with contents, some that were
// overwritten and removed; the journal has been trimmed, and the victim's state
// was received from another replica.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Volume: volumetest.New(t, volumetest.Options{}), bin: devtest.Binary(t), want: map[string][32]byte{}}
	b.StartAll()
	b.client = b.Client(20 * time.Second)
	for i := range 40 {
		b.put(fmt.Sprint("small-", i), []byte(strings.Repeat("small ", i*5)))
	}
	for i := range 6 {
		b.put(fmt.Sprint("large-", i), filled(byte(i), 300_000+7*i))
	}
	must(t, b.CaughtUp(victim))
	must(t, b.Stop(victim))
	b.older = filepath.Join(t.TempDir(), "older")
	copyTree(t, b.ReplicaDir(victim), b.older)
	// It gets a checkpoint, since nobody has kept for it what it lacks.
	for i, last := 0, b.Running(b.Coordinator()).Report().Journal.Last; ; i++ {
		b.put("overwritten", filled(byte(i), 1<<20))
		if b.Running(b.Coordinator()).Report().Journal.First > last+1 {
			break
		}
		if i == 1000 {
			t.Fatal("the journal was not trimmed")
		}
	}
	must(t, os.RemoveAll(filepath.Join(b.ReplicaDir(victim), "tree")))
	b.Start(victim)
	must(t, b.CaughtUp(victim))
	for i := range 20 {
		b.put("overwritten", filled(byte(100+i), 1<<20))
		b.put(fmt.Sprint("large-", i%6), filled(byte(50+i), 200_000+i))
	}
	must(t, b.CaughtUp(victim))
	must(t, b.Stop(victim))
	b.whole, b.record = filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "record")
	b.keep(t)
	b.foreign = b.ReplicaDir(1)
	b.stranger = stranger(t)
	return b
}

// stranger is the folder of a replica of another volume, one with the same
// names.
func stranger(t *testing.T) string {
	t.Helper()
	v := volumetest.New(t, volumetest.Options{})
	v.StartAll()
	c := v.Client(20 * time.Second)
	for i := range 40 {
		c.Write(fmt.Sprint("small-", i), []byte("another volume's"))
	}
	for i := range 6 {
		c.Write(fmt.Sprint("large-", i), filled(byte(200+i), 300_000))
	}
	must(t, v.CaughtUp(victim))
	v.StopAll()
	return v.ReplicaDir(victim)
}

func filled(with byte, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = with + byte(i>>12) + byte(i)
	}
	return p
}

func (b *bench) put(name string, data []byte) {
	ino := b.client.File(name)
	b.client.Must(&fsop.SetAttr{Ino: ino, Valid: fsop.SetSize, Size: 0})
	b.client.WriteAt(ino, 0, data)
	b.want[name] = sha256.Sum256(data)
}

// TestDamage goes through the table (C2, C3, C6, C8).
func TestDamage(t *testing.T) {
	b := newBench(t)
	dice := rand.New(rand.NewPCG(*seedFlag, 1))
	counts := map[string]int{}
	for i := range kinds {
		for j := range harms {
			n := len(filesOf(t, b.whole, &kinds[i]))
			if n == 0 && j == 0 {
				t.Fatalf("the replica has no %s", kinds[i].name)
			}
			if *filesFlag > 0 {
				n = min(n, *filesFlag)
			}
			for range n {
				b.try(t, &kinds[i], &harms[j], dice, counts)
			}
		}
	}
	t.Logf("outcomes: %v", counts)
	for _, outcome := range []string{"lost", "repaired"} {
		if counts[outcome] == 0 {
			t.Errorf("no damage was %s", outcome)
		}
	}
}

// try tries a harm at some places of some file of a kind. Each repair gives the
// replica other files.
func (b *bench) try(t *testing.T, k *kind, h *harm, dice *rand.Rand, counts map[string]int) {
	for n := int64(0); ; n++ {
		files := filesOf(t, b.whole, k)
		if len(files) == 0 {
			return // a row before has shown that a replica does without
		}
		rel := files[dice.IntN(len(files))]
		st, err := os.Stat(filepath.Join(b.whole, rel))
		must(t, err)
		all := h.places(st.Size())
		tries := *placesFlag
		if tries == 0 || tries > all {
			tries = all
		}
		if n >= tries {
			return
		}
		place := n
		if tries < all {
			place = dice.Int64N(all)
		}
		t.Run(describe(k, h, rel, place), func(t *testing.T) {
			outcome := b.suffer(t, func() bool {
				h.do(t, b, rel, place)
				return b.different(t, rel)
			})
			counts[outcome]++
			if outcome == "lost" && !k.lost || outcome == "repaired" && !k.repaired {
				t.Errorf("%s", outcome)
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
}

// TestOldCopy puts the whole folder back as it was earlier, also without the
// identity's neighbours, and the folder of nobody (C6).
func TestOldCopy(t *testing.T) {
	b := newBench(t)
	for name, do := range map[string]func(){
		"the whole folder, older": func() { copyTree(t, b.older, b.ReplicaDir(victim)) },
		"log older, state newer": func() {
			copyTree(t, b.whole, b.ReplicaDir(victim))
			must(t, os.RemoveAll(b.path("log")))
			copyTree(t, filepath.Join(b.older, "log"), b.path("log"))
		},
		"another replica's folder": func() { copyTree(t, b.foreign, b.ReplicaDir(victim)) },
		"another volume's folder":  func() { copyTree(t, b.stranger, b.ReplicaDir(victim)) },
		"an empty folder":          func() { must(t, os.MkdirAll(b.ReplicaDir(victim), 0o700)) },
		"no journal": func() {
			copyTree(t, b.whole, b.ReplicaDir(victim))
			must(t, os.RemoveAll(b.path("log/journal")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			outcome := b.suffer(t, func() bool {
				must(t, os.RemoveAll(b.ReplicaDir(victim)))
				do()
				return true
			})
			if outcome != "lost" {
				t.Errorf("%s", outcome)
			}
		})
	}
	for name, do := range map[string]func(){
		"state missing": func() { must(t, os.RemoveAll(b.path("tree"))) },
		"state older": func() {
			must(t, os.RemoveAll(b.path("tree")))
			copyTree(t, filepath.Join(b.older, "tree"), b.path("tree"))
		},
		"all contents missing": func() {
			gens, err := filepath.Glob(b.path("tree/gen-*/content"))
			must(t, err)
			for _, dir := range gens {
				must(t, os.RemoveAll(dir))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if outcome := b.suffer(t, func() bool { do(); return true }); outcome != "repaired" {
				t.Errorf("%s", outcome)
			}
		})
	}
}

// suffer puts the victim back as it was, harms it, starts it and judges what
// comes of it. harm returns whether anything has changed.
func (b *bench) suffer(t *testing.T, harm func() bool) string {
	t.Helper()
	_ = b.Stop(victim) // the row before has been judged
	must(t, os.RemoveAll(b.ReplicaDir(victim)))
	copyTree(t, b.whole, b.ReplicaDir(victim))
	copyFile(t, b.record, b.Record(victim))
	if !harm() {
		return "the same"
	}
	r := b.Start(victim)
	b.n++
	b.put("progress", []byte(fmt.Sprint("row ", b.n))) // whatever the victim does
	if ended, err := r.Ended(); ended {
		return lostOutcome(t, err)
	}
	if err := b.restarted(t); err != nil {
		return lostOutcome(t, err)
	}
	must(t, b.Stop(victim))
	b.compare(t)
	b.keep(t)
	return "repaired"
}

// keep makes what the victim has now the state that the next row begins with:
// to go back behind what it has confirmed by now would be one more harm.
func (b *bench) keep(t *testing.T) {
	t.Helper()
	must(t, os.RemoveAll(b.whole))
	copyTree(t, b.ReplicaDir(victim), b.whole)
	copyFile(t, b.Record(victim), b.record)
}

// restarted waits until the victim has caught up, starting it again as its
// supervisor would when it ends by itself.
func (b *bench) restarted(t *testing.T) error {
	t.Helper()
	var err error
	for range 4 {
		if err = b.CaughtUp(victim); err == nil {
			err = b.Scrubbed(victim)
		}
		if err == nil || worker.StateLost(err) {
			return err
		}
		_ = b.Stop(victim)
		b.Start(victim)
	}
	t.Fatalf("the worker ends again and again: %v", err)
	return nil
}

func lostOutcome(t *testing.T, err error) string {
	t.Helper()
	if !worker.StateLost(err) || len(err.Error()) < 30 {
		t.Errorf("the worker ended with %v", err)
	}
	return "lost"
}

// compare exports the victim's files and wants each to be what was written.
func (b *bench) compare(t *testing.T) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "export")
	if text, err := exec.Command(b.bin, "ctl", "export", b.ReplicaDir(victim), out).CombinedOutput(); err != nil {
		t.Fatalf("export: %v\n%s", err, text)
	}
	for name, sum := range b.want {
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := sha256.Sum256(data); !bytes.Equal(got[:], sum[:]) {
			t.Errorf("%s has other contents", name)
		}
	}
}
