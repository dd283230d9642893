package coord_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestCoherentUnderNoise has one goroutine change files through a random mount
// and check the outcome through all others, while noise on every mount keeps
// leases coming and going in the same directory and leaders change (B3, B5).
func TestCoherentUnderNoise(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(0, false)
	var mounts []*mount
	for i := range 3 {
		mounts = append(mounts, w.mount(fmt.Sprint("m", i), client.NewMemLedger()))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, m := range mounts {
		wg.Go(func() { makeNoise(m, i, stop) })
		wg.Go(func() { stare(m, stop) })
	}
	wg.Go(func() { keepElecting(w, stop) })

	rng := rand.New(rand.NewPCG(1, 2))
	modelled := map[string]uint64{}         // name → size
	end := time.Now().Add(10 * time.Second) // the race detector makes the store's own checks slow
	for step := 0; step < 1000 && time.Now().Before(end); step++ {
		m := mounts[rng.IntN(len(mounts))]
		name := fmt.Sprint("n", rng.IntN(4))
		size, exists := modelled[name]
		switch {
		case !exists:
			m.create(name)
			modelled[name] = 0
		case rng.IntN(3) == 0:
			m.ok(&fsop.Unlink{Parent: fsop.Root, Name: []byte(name)})
			delete(modelled, name)
		case rng.IntN(2) == 0:
			to := fmt.Sprint("n", rng.IntN(4))
			m.ok(&fsop.Rename{Parent: fsop.Root, Name: []byte(name), NewParent: fsop.Root, NewName: []byte(to)})
			delete(modelled, name)
			modelled[to] = size
		default:
			m.ok(&fsop.Write{Ino: m.lookup(name), Append: true, Data: []byte("x")})
			modelled[name]++
		}
		for i, o := range mounts {
			for n := range 4 {
				name := fmt.Sprint("n", n)
				rep := o.do(&fsop.Lookup{Parent: fsop.Root, Name: []byte(name)})
				size, exists := modelled[name]
				if (rep.Errno == fsop.OK) != exists {
					t.Fatalf("step %d: mount %d sees %s: %v, want exists %v", step, i, name, rep.Errno, exists)
				}
				if exists && rep.Attrs[0].Size != size {
					t.Fatalf("step %d: mount %d sees size %d of %s, want %d", step, i, rep.Attrs[0].Size, name, size)
				}
			}
		}
	}
	close(stop)
	wg.Wait()
}

// makeNoise creates, links and removes files of its own in the shared root.
func makeNoise(m *mount, id int, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		name := []byte(fmt.Sprintf("noise-%d", id))
		m.do(&fsop.Create{Parent: fsop.Root, Name: name, Mode: fsop.TypeFile | 0o600})
		m.do(&fsop.Unlink{Parent: fsop.Root, Name: name})
		time.Sleep(time.Duration(i%5) * time.Millisecond)
	}
}

// stare reads what the others change, so that leases and recalls cross.
func stare(m *mount, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		m.do(&fsop.Lookup{Parent: fsop.Root, Name: []byte(fmt.Sprint("n", i%4))})
		m.do(&fsop.ReadDir{Ino: fsop.Root, MaxBytes: 4096, Plus: true})
		time.Sleep(100 * time.Microsecond)
	}
}

// keepElecting changes the leader now and then, losing or keeping what is in
// flight.
func keepElecting(w *world, stop chan struct{}) {
	for i := 1; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(500 * time.Millisecond):
		}
		w.hold()
		time.Sleep(2 * time.Millisecond)
		w.elect(i%3, i%2 == 0)
	}
}
