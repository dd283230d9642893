package worker

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/roles/boot"
)

// Config says which replica a worker serves, and where.
type Config struct {
	Dir         string // the replica's folder
	Volume      string // the volume's UID
	Replica     string // the replica's name
	Incarnation uint64
	Member      uint64   // the replica's id in the log
	Listen      string   // host:port
	Members     []Member // all the volume's members, this one too
	Trust       string   // folder of the replica's credentials
	// Bootstrap says that the replica has never been initialised: an empty
	// folder is initialised instead of being taken for a lost replica.
	Bootstrap bool
	// Record is the file, outside of Dir, in which the host keeps what it knows
	// of the replica; empty for none. See record.go.
	Record string
	// ReserveBytes of the replica's disk are kept from files.
	ReserveBytes uint64
	// Checkpoint bounds the journal between two checkpoints, in bytes.
	CheckpointBytes int64
	JournalBytes    int64
	RebuildRate     int64 // bytes a second to members that need a checkpoint
	TTL             time.Duration
	// SessionLeases is on how many inodes one client may hold leases; 0: the default.
	SessionLeases int
	// ScrubRate and ScrubEvery bound the scrub: bytes of contents read a second,
	// and from one round to the next; 0 stands for the defaults.
	ScrubRate  int64
	ScrubEvery time.Duration
	Boot       boot.Config
	// Join says that the replica joins a log that exists: initialised, it waits
	// for a checkpoint instead of beginning with the first members.
	Join bool
	// Locate, if not nil, tells where a life of a replica is reached if that is not where
	// Members says: one that is about to take another's place. It is asked from any
	// goroutine, at every attempt to connect.
	Locate func(replica string, incarnation uint64) (addr, serverName string, ok bool)
	// Bounds are shared with the other workers of the process.
	Bounds Bounds
	// Inspect, if not nil, is called before ready with a function that makes
	// the worker's report; it may be called until Run returns.
	Inspect func(report func() Report)
	// Ops takes the worker's health and metrics; nil stands for its own.
	Ops *boot.Ops
}

// Member is a member of the volume and where it listens.
type Member struct {
	ID      uint64
	Replica string
	Addr    string // host:port
	// ServerName is what the member's certificate must say; the host of Addr
	// when empty.
	ServerName string
}

// String is the form that ParseMember reads.
func (m Member) String() string {
	s := fmt.Sprintf("%d=%s@%s", m.ID, m.Replica, m.Addr)
	if m.ServerName != "" {
		s += "/" + m.ServerName
	}
	return s
}

// Host is the name that the member's certificate must have.
func (m Member) Host() string {
	if m.ServerName != "" {
		return m.ServerName
	}
	host, _, _ := net.SplitHostPort(m.Addr)
	return host
}

// ParseMember reads ID=REPLICA@HOST:PORT[/SERVERNAME].
func ParseMember(text string) (Member, error) {
	fail := func(what string) (Member, error) {
		return Member{}, boot.Usagef("member %q: %s; the form is ID=REPLICA@HOST:PORT[/SERVERNAME]", text, what)
	}
	number, rest, ok := strings.Cut(text, "=")
	if !ok {
		return fail("no =")
	}
	id, err := strconv.ParseUint(number, 10, 62)
	if err != nil || id == 0 {
		return fail("the id is not a positive number")
	}
	replica, addr, ok := strings.Cut(rest, "@")
	if !ok || replica == "" {
		return fail("no replica before an @")
	}
	addr, name, _ := strings.Cut(addr, "/")
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return fail("the address is not HOST:PORT")
	}
	return Member{ID: id, Replica: replica, Addr: addr, ServerName: name}, nil
}

// Least sizes with which a replica works: a journal has a few segments.
const (
	journalLeast    = 16 << 20
	checkpointLeast = 256 << 10
)

// CheckSizes refuses what --checkpoint-bytes and --journal-bytes can't be; 0 stands
// for the default.
func CheckSizes(checkpoint, journal int64) error {
	switch {
	case checkpoint != 0 && checkpoint < checkpointLeast:
		return boot.Usagef("--checkpoint-bytes: %d is less than %d", checkpoint, checkpointLeast)
	case journal != 0 && journal < journalLeast:
		return boot.Usagef("--journal-bytes: %d is less than %d", journal, journalLeast)
	}
	return nil
}

// CheckLeases refuses what --session-leases can't be; 0 stands for the default.
func CheckLeases(n int) error {
	if n != 0 && (n < leasesLeast || n > leasesMost) {
		return boot.Usagef("--session-leases: %d is not %d to %d", n, leasesLeast, leasesMost)
	}
	return nil
}

// validate checks what does not need the machine.
func (c *Config) validate() error {
	for _, f := range []struct{ flag, value string }{
		{"dir", c.Dir}, {"volume", c.Volume}, {"replica", c.Replica}, {"listen", c.Listen}, {"trust", c.Trust},
	} {
		if f.value == "" {
			return boot.Usagef("--%s is needed", f.flag)
		}
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return boot.Usagef("--listen: %v", err)
	}
	if len(c.Members) < 1 || len(c.Members) > 4 {
		return boot.Usagef("--member: %d members, a volume has 1 to 4", len(c.Members))
	}
	if c.Incarnation == 0 {
		return boot.Usagef("--incarnation begins at 1")
	}
	if err := CheckSizes(c.CheckpointBytes, c.JournalBytes); err != nil {
		return err
	}
	if err := CheckLeases(c.SessionLeases); err != nil {
		return err
	}
	seen := map[uint64]bool{}
	for _, m := range c.Members {
		if seen[m.ID] {
			return boot.Usagef("--member: id %d is there twice", m.ID)
		}
		seen[m.ID] = true
		if m.Replica == c.Replica {
			c.Member = m.ID
		}
	}
	if c.Member == 0 {
		return boot.Usagef("--member: replica %s is not among the members", c.Replica)
	}
	return nil
}

// Args is the command line of a worker process with this configuration, which
// ends with its standard input.
func (c *Config) Args() []string {
	args := []string{
		"worker", "--dir", c.Dir, "--volume", c.Volume, "--replica", c.Replica, "--incarnation", fmt.Sprint(c.Incarnation),
		"--listen", c.Listen, "--trust", c.Trust, "--reserve-bytes", fmt.Sprint(c.ReserveBytes),
		"--checkpoint-bytes", fmt.Sprint(c.CheckpointBytes), "--journal-bytes", fmt.Sprint(c.JournalBytes),
		"--rebuild-rate", fmt.Sprint(c.RebuildRate), "--lease-ttl", c.TTL.String(),
		"--scrub-rate", fmt.Sprint(c.ScrubRate), "--scrub-every", c.ScrubEvery.String(), "--log-level", c.Boot.LogLevel, "--log-format", c.Boot.LogFormat, "--until-stdin-ends",
	}
	if c.SessionLeases != 0 {
		args = append(args, "--session-leases", fmt.Sprint(c.SessionLeases))
	}
	for _, m := range c.Members {
		args = append(args, "--member", m.String())
	}
	if c.Bootstrap {
		args = append(args, "--bootstrap")
	}
	if c.Join {
		args = append(args, "--join")
	}
	if c.Record != "" {
		args = append(args, "--record", c.Record)
	}
	return args
}

func (c *Config) identity() raftlog.Identity {
	return raftlog.Identity{Volume: c.Volume, Replica: c.Replica, Incarnation: c.Incarnation, Member: c.Member}
}

// genesis is the membership that the log starts with.
func (c *Config) genesis() []raftlog.Member {
	if c.Join {
		return nil
	}
	var members []raftlog.Member
	for _, m := range c.Members {
		members = append(members, raftlog.Member{ID: m.ID, Replica: m.Replica, Incarnation: 1})
	}
	return members
}

func (c *Config) completeScrub() {
	if c.ScrubRate <= 0 {
		c.ScrubRate = DefaultScrubRate
	}
	if c.ScrubEvery <= 0 {
		c.ScrubEvery = DefaultScrubEvery
	}
}

// place tells where a replica listens: in all of its lives at the same place.
func (c *Config) place(replica string) (Member, bool) {
	for _, m := range c.Members {
		if m.Replica == replica {
			return m, true
		}
	}
	return Member{}, false
}
