package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds. A is a replica or, where it says so, a client; For is how long it
// lasts; N is a number whose meaning is the kind's.
const (
	PowerCut    Kind = "power cut"           // of A now; N is what survives
	Kill        Kind = "killed"              // A's process, not its machine
	CutAtCall   Kind = "power cut at call"   // the N-th call on A's disk that changes something
	CutInstall  Kind = "cut in install"      // A falls behind, and loses power at the N-th call from where it receives
	FailedSync  Kind = "failed sync"         // the N-th sync on A's disk
	FlippedBits Kind = "flipped bits"        // in a file of A while it is down
	FullDisk    Kind = "full disk"           // A has N KiB left
	SlowDisk    Kind = "slow disk"           // a sync of A's journal takes N ms
	Isolated    Kind = "isolated"            // A from the other replicas
	OneWay      Kind = "one-way partition"   // A does not reach B
	Halves      Kind = "split in halves"     // by the bits of N
	Behind      Kind = "fell behind"         // A is isolated for so long that it needs a checkpoint
	BadNetwork  Kind = "bad network"         // losses, duplicates, delays, reordering
	LostReplies Kind = "lost connection"     // of client A, with all that is under way
	ClientCut   Kind = "client cut off"      // client A from all replicas; N: 0 both ways, 1 to them, 2 from them
	ClientFrom  Kind = "client cut from"     // client A from replica B
	ClientPause Kind = "client paused"       // client A
	Pause       Kind = "replica paused"      // A
	ClockStep   Kind = "clock step"          // A's wall clock, by N ms
	Takeover    Kind = "server replaced"     // client A's serving process, by another one with its ledger
	ClientGone  Kind = "client gone"         // client A for good; another one comes in its place
	Transfer    Kind = "leadership moved"    // by wish
	Checkpoint  Kind = "checkpoint"          // of A by wish
	AddMember   Kind = "member added"        // a new replica
	Replace     Kind = "member replaced"     // A by a new replica
	Blackout    Kind = "power cut of all"    // every replica at once
	HotPause    Kind = "leader paused"       // whoever leads then
	HotCut      Kind = "leader cut off"      // whoever leads then, from the replicas
	HotPower    Kind = "leader power cut"    // whoever leads then; N is what survives
	HotOneWay   Kind = "leader hears nobody" // whoever leads then
	Usurped     Kind = "elected twice"       // a leader is followed by another one, whose voters lose power and meet only the first
	SlowApply   Kind = "slow to apply"       // A takes N ms for each batch of entries
	SlowNaming  Kind = "slow checkpoints"    // A takes N ms from beginning a checkpoint to naming it
	Bounced     Kind = "leads twice at once" // a leader hands over and is handed back while it applies
	Stranded    Kind = "leader and client"   // client A is cut off, and whoever leads is killed
	Stuck       Kind = "leader stuck"        // whoever leads applies nothing, and reaches nobody but client A
	Asleep      Kind = "leader asleep"       // whoever leads, for long; client A reaches nobody else
	Hoarding    Kind = "client hoards"       // client A is cut off with its work, and others ask for that when its term has passed
	Deluded     Kind = "leader deluded"      // whoever leads applies nothing, and reaches nobody but client A, which only looks at what it has
)

// Fault is one thing that goes wrong, and when.
type Fault struct {
	At   time.Duration
	Kind Kind
	A, B int
	For  time.Duration
	N    int
}

func (f Fault) String() string {
	return fmt.Sprintf("%v %s A=%d B=%d for %v N=%d", f.At, f.Kind, f.A, f.B, f.For, f.N)
}

// Plan is everything that is decided about a world before it begins.
type Plan struct {
	Seed       uint64
	Replicas   int
	Clients    int
	Threads    int // of a client
	Ops        int // of a thread
	Think      time.Duration
	QuorumWait time.Duration
	Duration   time.Duration // until the last fault has begun
	SmallDisk  bool          // writes may be refused for want of space
	QueueOps   int           // operations that a session may answer ahead of the log
	Diet       diet          // what the threads do most
	Mends      bool          // damaged pages that are read are mended from other replicas
	Faults     []Fault
	Rare       bool // it has a window that is too rare elsewhere
}

// rareFrom is the first seed of worlds with windows that are too rare in others.
const rareFrom = 1_000_000

// String lists the faults.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d replicas, quorum wait %v, %d operations ahead\n", p.Seed, p.Replicas, p.QuorumWait, p.QueueOps)
	for i, f := range p.Faults {
		fmt.Fprintf(&b, "  %2d  %v\n", i, f)
	}
	return b.String()
}

const faultsFrom = time.Second

// queueOps is how many operations sessions may answer ahead of the log, in the
// worlds in which they do: as many as a mount owner's.
const queueOps = 8192

// aheadFlag sets how many in all worlds of a run; without it every seed decides.
var aheadFlag = -1

// themes are faults that a world has more of than of others, so that each is met
// with itself and with a few others.
var themes = [][]Kind{
	{PowerCut, CutAtCall, HotPower, Kill, Blackout},
	{CutInstall, Behind, Isolated, Checkpoint},
	{Isolated, OneWay, Halves, HotCut, HotOneWay, Usurped},
	{FailedSync, SlowDisk, FullDisk, CutAtCall},
	{Pause, ClientPause, ClockStep, HotPause, BadNetwork},
	{LostReplies, ClientCut, ClientFrom, Takeover, BadNetwork},
	{ClientGone, Takeover, ClientCut, ClientPause, Transfer},
	{AddMember, Replace, PowerCut, Isolated, HotCut},
	{Blackout, HotPower, LostReplies, Transfer, SlowApply, Usurped},
	{FlippedBits, PowerCut, HotCut, LostReplies},
	{Bounced, Stranded, Stuck, Asleep, HotPower},
	{SlowNaming, PowerCut, Kill, HotPower, SlowNaming, Behind},
}

// anyKind may come up in every world.
var anyKind = []Kind{
	PowerCut, Kill, CutAtCall, Isolated, OneWay, Halves, BadNetwork, LostReplies, ClientCut, ClientFrom,
	ClientPause, Pause, ClockStep, Takeover, Transfer, Checkpoint, HotPause, HotCut, HotPower, HotOneWay, SlowDisk,
}

// MakePlan makes the plan of a seed.
func MakePlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := Plan{
		Seed: seed, Clients: 3, Threads: 2, Ops: 44,
		Replicas: []int{3, 3, 3, 3, 4, 2, 3, 1, 3, 4}[seed/uint64(len(themes))%10],
		Think:    time.Duration(100+r.IntN(500)) * time.Millisecond,
	}
	if r.IntN(4) == 0 {
		p.QuorumWait = time.Duration(2+r.IntN(4)) * time.Second
	}
	if ahead := rand.New(rand.NewPCG(seed, 4)).IntN(2) * queueOps; aheadFlag < 0 {
		p.QueueOps = ahead
	} else {
		p.QueueOps = aheadFlag
	}
	p.Diet = []diet{plain, plain, plain, orphans, locks}[rand.New(rand.NewPCG(seed, 6)).IntN(5)]
	p.Mends = rand.New(rand.NewPCG(seed, 8)).IntN(2) == 0
	theme := themes[seed%uint64(len(themes))]
	p.SmallDisk = slices.Contains(theme, FullDisk)
	at := faultsFrom
	for at < 18*time.Second {
		at += time.Duration(r.IntN(2000)) * time.Millisecond
		kind := theme[r.IntN(len(theme))]
		if r.IntN(3) == 0 {
			kind = anyKind[r.IntN(len(anyKind))]
		}
		p.add(r, at, kind)
	}
	p.Duration = at
	if p.Rare = seed >= rareFrom; p.Rare {
		p.addRare(rand.New(rand.NewPCG(seed, 9)))
	}
	return p
}

// addRare adds a fault whose window is too rare in the others. It takes long.
func (p *Plan) addRare(r *rand.Rand) {
	at := 3*time.Second + time.Duration(r.IntN(6000))*time.Millisecond
	if kind := []Kind{Deluded, Hoarding, FlippedBits, FullDisk}[r.IntN(4)]; p.fits(kind) {
		p.SmallDisk = p.SmallDisk || kind == FullDisk
		p.add(r, at, kind)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// add draws the details of a fault.
func (p *Plan) add(r *rand.Rand, at time.Duration, kind Kind) {
	f := Fault{At: at, Kind: kind, A: r.IntN(p.Replicas), B: r.IntN(p.Replicas), N: r.IntN(1 << 16)}
	f.For = time.Duration(50+r.IntN(2500)) * time.Millisecond
	switch kind {
	case CutAtCall:
		f.N = 1 + r.IntN(60)
	case CutInstall:
		f.N = 1 + r.IntN(50)
	case FailedSync:
		f.N = r.IntN(6)
	case SlowDisk:
		f.N = []int{5, 40, 300, 2600}[r.IntN(4)]
	case SlowNaming:
		f.N = 500 + r.IntN(2500)
		f.For = 4 * time.Second
	case Stranded:
		f.A = r.IntN(p.Clients)
		f.For = 2 * time.Second
	case Stuck:
		f.A = r.IntN(p.Clients)
		f.For = 7 * time.Second
	case Hoarding:
		f.A = r.IntN(p.Clients)
		f.For += 4500 * time.Millisecond
	case Deluded:
		f.A = r.IntN(p.Clients)
		f.For = 9 * time.Second
	case Asleep:
		f.A = r.IntN(p.Clients)
		f.For = 6500*time.Millisecond + f.For
	case SlowApply:
		f.N = 20 + r.IntN(1500)
	case FullDisk:
		f.N = r.IntN(200)
	case ClientCut, ClientFrom, ClientPause, LostReplies, Takeover, ClientGone:
		f.A = r.IntN(p.Clients)
		if r.IntN(4) == 0 {
			f.For += 4 * time.Second // beyond a lease's term
		}
		if r.IntN(12) == 0 {
			f.For += evictAfter
		}
	case ClockStep:
		f.N = r.IntN(20000) - 10000
	case Pause, HotPause:
		if r.IntN(3) == 0 {
			f.For += 3 * time.Second
		}
	}
	if f.A == f.B && kind != ClientFrom {
		f.B = (f.A + 1) % p.Replicas
	}
	if p.fits(kind) {
		p.Faults = append(p.Faults, f)
	}
}

// fits says whether a world of that size survives a kind of fault.
func (p *Plan) fits(kind Kind) bool {
	switch kind {
	case FlippedBits:
		return p.Replicas >= 3 && !slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == FlippedBits })
	case AddMember, Replace:
		n := 0
		for _, f := range p.Faults {
			if f.Kind == AddMember || f.Kind == Replace {
				n++
			}
		}
		return p.Replicas >= 2 && n < 3
	case Hoarding:
		return p.QueueOps > 0
	case Behind, CutInstall, Usurped, Bounced, Stranded, Stuck, Asleep, Deluded:
		return p.Replicas >= 3
	}
	return true
}
