package worker

import (
	"slices"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/roles/boot"
)

func TestParseMember(t *testing.T) {
	good := map[string]Member{
		"1=replica-1@127.0.0.1:20000":  {ID: 1, Replica: "replica-1", Addr: "127.0.0.1:20000"},
		"9=a@[::1]:7420/a.svc.cluster": {ID: 9, Replica: "a", Addr: "[::1]:7420", ServerName: "a.svc.cluster"},
		"2=b@b.default.svc:7420":       {ID: 2, Replica: "b", Addr: "b.default.svc:7420"},
	}
	for text, want := range good {
		got, err := ParseMember(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%s is written as %s", text, got)
		}
	}
	for _, bad := range []string{"", "1", "0=a@h:1", "x=a@h:1", "1=@h:1", "1=a", "1=a@h", "1=a@:1", "1=a@h:", "-1=a@h:1"} {
		if _, err := ParseMember(bad); !boot.IsUsage(err) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	for m, want := range map[Member]string{
		{Addr: "127.0.0.1:1"}: "127.0.0.1", {Addr: "h:1", ServerName: "s"}: "s", {Addr: "[::1]:1"}: "::1",
	} {
		if got := m.Host(); got != want {
			t.Errorf("host of %+v is %q", m, got)
		}
	}
}

func FuzzParseMember(f *testing.F) {
	f.Add("1=replica-1@127.0.0.1:20000/name")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMember(text)
		if err != nil {
			return
		}
		again, err := ParseMember(m.String())
		if err != nil || again != m {
			t.Errorf("%q is %+v, and again %+v, %v", text, m, again, err)
		}
	})
}

func validConfig() Config {
	return Config{
		Dir: "d", Volume: "v", Replica: "b", Incarnation: 1, Listen: "127.0.0.1:0", Trust: "t",
		Members: []Member{{ID: 1, Replica: "a", Addr: "h:1"}, {ID: 2, Replica: "b", Addr: "h:2"}},
		TTL:     time.Second,
	}
}

func TestValidate(t *testing.T) {
	c := validConfig()
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	if c.Member != 2 || c.identity().Member != 2 || len(c.genesis()) != 2 {
		t.Errorf("completed to %+v", c)
	}
	for name, spoil := range map[string]func(*Config){
		"no dir":        func(c *Config) { c.Dir = "" },
		"no volume":     func(c *Config) { c.Volume = "" },
		"no trust":      func(c *Config) { c.Trust = "" },
		"bad listen":    func(c *Config) { c.Listen = "x" },
		"no members":    func(c *Config) { c.Members = nil },
		"not a member":  func(c *Config) { c.Replica = "z" },
		"twice":         func(c *Config) { c.Members[0].ID = 2 },
		"incarnation 0": func(c *Config) { c.Incarnation = 0 },
	} {
		c := validConfig()
		spoil(&c)
		if err := c.validate(); !boot.IsUsage(err) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestArgs runs a worker's own command line through its own flags.
func TestArgs(t *testing.T) {
	c := validConfig()
	c.Bootstrap, c.Join, c.Record, c.SessionLeases = true, true, "r", DefaultSessionLeases
	args := c.Args()
	cmd := Command()
	for _, f := range cmd.Flags {
		name := f.Names()[0]
		if !slices.Contains(args, "--"+name) && name != "metrics-addr" {
			t.Errorf("--%s is not passed to a child", name)
		}
	}
}

func TestFits(t *testing.T) {
	cases := []struct {
		name  string
		info  tree.SpaceInfo
		grows tree.Growth
		want  bool
	}{
		{"room", tree.SpaceInfo{DiskFree: 200, Reserve: 100}, tree.Growth{Bytes: 100}, true},
		{"into the reserve", tree.SpaceInfo{DiskFree: 200, Reserve: 100}, tree.Growth{Bytes: 101}, false},
		{"quota", tree.SpaceInfo{DiskFree: 200, LimitBytes: 50, UsedBytes: 40}, tree.Growth{Bytes: 11}, false},
		{"quota to the byte", tree.SpaceInfo{DiskFree: 200, LimitBytes: 50, UsedBytes: 40}, tree.Growth{Bytes: 10}, true},
		{"quota of inodes", tree.SpaceInfo{DiskFree: 200, LimitInodes: 5, UsedInodes: 5}, tree.Growth{Bytes: 1}, false},
		{"an inode", tree.SpaceInfo{DiskFree: 200, DiskInodes: 80_000, InodesFree: 10_001}, tree.Growth{Bytes: 1, Files: 1}, true},
		{"kept inodes", tree.SpaceInfo{DiskFree: 200, DiskInodes: 80_000, InodesFree: 10_000}, tree.Growth{Bytes: 1, Files: 1}, false},
		{"kept inodes of a large disk", tree.SpaceInfo{DiskFree: 200, DiskInodes: 1 << 30, InodesFree: 16 << 10}, tree.Growth{Bytes: 1, Files: 1}, false},
		{"no file is made", tree.SpaceInfo{DiskFree: 200, DiskInodes: 80_000}, tree.Growth{Bytes: 1}, true},
		{"inodes are not counted", tree.SpaceInfo{DiskFree: 200}, tree.Growth{Bytes: 1, Files: 1}, true},
	}
	for _, c := range cases {
		s := &space{}
		s.look(time.Now(), c.info)
		if got := s.fits(c.grows); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
