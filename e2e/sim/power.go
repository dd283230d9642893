package sim

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// power stands between a replica's process and its disk: it takes the power at a
// certain call, makes syncs fail, and makes them slow.
type power struct {
	mem    *disk.Mem
	counts *Counts
	gone   chan struct{} // closed when the power is
	vain   atomic.Int64  // calls since then

	mu struct {
		sync.Mutex
		after    *disk.Mem // what a cut has left, nil while there is power
		where    string    // the call at which it came
		cutIn    int       // calls that change something until the cut, 0: none
		cutFrom  string    // the first that counts is one whose path contains this
		counting bool
		keep     disk.Keep
		failIn   int    // syncs until one fails, 0: none
		failed   string // the call that has, empty: none
		names    bool   // it was the sync of a folder
		slow     time.Duration
		wrote    map[string]int64 // where a file was written last
		contents string           // the content file that was written last
		starting bool
	}
}

func newPower(mem *disk.Mem, counts *Counts) *power {
	return &power{mem: mem, counts: counts, gone: make(chan struct{})}
}

func (p *power) fs() disk.FS { return disk.Inject(p.mem, p.before) }

var changing = map[disk.Op]bool{
	disk.OpCreate: true, disk.OpLink: true, disk.OpRemove: true, disk.OpRemoveAll: true, disk.OpRename: true,
	disk.OpMkdir: true, disk.OpSyncDir: true, disk.OpWrite: true, disk.OpSync: true, disk.OpTruncate: true,
	disk.OpPunch: true, disk.OpAllocate: true,
}

// before is asked before every call.
func (p *power) before(call disk.Call) error {
	slow, err := p.decide(call)
	if slow > 0 {
		p.counts.Add("slow sync")
		time.Sleep(slow)
	}
	if err == disk.ErrPowerOff {
		p.afterCut()
	}
	return err
}

// afterCut gives others their turn: pebble tries again for ever. A store that did
// not open nobody closes; its goroutine ends when the world has lived on for long.
func (p *power) afterCut() {
	switch n := p.vain.Add(1); {
	case n > 20000:
		runtime.Goexit()
	case n > 500:
		time.Sleep(step)
	default:
		runtime.Gosched()
	}
}

func (p *power) decide(call disk.Call) (slow time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.after != nil {
		return 0, disk.ErrPowerOff
	}
	if p.mu.cutIn > 0 && changing[call.Op] && strings.Contains(call.Path, p.mu.cutFrom) {
		p.mu.counting = true
	}
	if p.mu.counting && changing[call.Op] {
		if p.mu.cutIn--; p.mu.cutIn == 0 {
			p.cutLocked(p.mu.keep, string(call.Op)+" "+call.Path)
			return 0, disk.ErrPowerOff
		}
	}
	sync := call.Op == disk.OpSync || call.Op == disk.OpSyncDir
	if p.mu.failIn > 0 && sync {
		if p.mu.failIn--; p.mu.failIn == 0 {
			p.mu.failed, p.mu.names = string(call.Op)+" "+call.Path, call.Op == disk.OpSyncDir
			p.counts.Add("fault: sync failed, of " + class(call.Path))
			return 0, syscall.EIO
		}
	}
	if call.Op == disk.OpWrite {
		if p.mu.wrote == nil {
			p.mu.wrote = map[string]int64{}
		}
		p.mu.wrote[call.Path] = call.Off
		if strings.Contains(call.Path, "/content/") {
			p.mu.contents = call.Path
		}
	}
	// Only batches are slow: while a segment is made or given up a lock is held that
	// others wait for, and then time would stand still.
	if call.Op == disk.OpSync && strings.Contains(call.Path, "/log/journal/segment") && p.mu.wrote[call.Path] > 0 {
		return p.mu.slow, nil
	}
	return 0, nil
}

// class tells what a file is for.
func class(path string) string {
	switch {
	case strings.Contains(path, "/recv"):
		return "a checkpoint being received"
	case strings.Contains(path, "/ck"):
		return "a checkpoint"
	case strings.Contains(path, "/content"):
		return "contents"
	case strings.Contains(path, "/live"):
		return "the store"
	case strings.Contains(path, "/log/journal"):
		return "the journal"
	case strings.HasPrefix(path, "/log"):
		return "the log's marks"
	}
	return "the tree's folder"
}

// cut takes the power now, unless it is gone already.
func (p *power) cut(keep disk.Keep) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.after == nil {
		p.cutLocked(keep, "")
	}
}

func (p *power) cutLocked(keep disk.Keep, where string) {
	p.mu.after, p.mu.where = p.mem.Crash(keep), where
	close(p.gone)
	if where == "" {
		return
	}
	_, path, _ := strings.Cut(where, " ")
	p.counts.Add("window: power cut at a call on " + class(path))
	if p.mu.cutFrom != "" {
		p.counts.Add("window: power cut during the install of a checkpoint")
	}
	if p.mu.starting {
		p.counts.Add("window: power cut while starting")
		if class(path) == "the store" {
			p.counts.Add("window: power cut while the store opens")
		}
	}
}

// remains is the disk after a cut, nil while there is power.
func (p *power) remains() *disk.Mem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.after
}

// cutAt arms a cut at the n-th call that changes something, counted from one whose
// path contains from.
func (p *power) cutAt(n int, from string, keep disk.Keep) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.cutIn, p.mu.cutFrom, p.mu.keep, p.mu.counting = n, from, keep, false
}

func (p *power) failSync(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.failIn = n
}

func (p *power) hasFailed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.failed != ""
}

// lastContents is the content file that was written last, "" if there is none.
func (p *power) lastContents() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.contents
}

// failure is the sync that has failed.
func (p *power) failure() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.failed
}

// hasFailedNames says that the sync of a folder failed. A file system whose own
// journal has failed serves nobody before the machine has started again.
func (p *power) hasFailedNames() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.names
}

func (p *power) setSlow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.slow = d
}

func (p *power) setStarting(starting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.starting = starting
}

// calm ends what is armed.
func (p *power) calm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.cutIn, p.mu.failIn, p.mu.slow, p.mu.counting = 0, 0, 0, false
}
