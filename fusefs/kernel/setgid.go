package kernel

import (
	"os"
	"strconv"
	"strings"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// dropSetgid finishes what KillPriv begins: a set-group-id bit without group
// execution goes too when somebody outside the group changes the file. Only the
// kernel knows the caller's groups, and it leaves the bits to us; so this is a
// second operation, asked for only in that rare case.
func (x *exchange) dropSetgid(rep *fsop.Reply, errno fsop.Errno) (*fsop.Reply, fsop.Errno) {
	if errno != fsop.OK || len(rep.Attrs) == 0 {
		return rep, errno
	}
	a := &rep.Attrs[0]
	if a.Mode&fsop.ModeSetGID == 0 || a.IsDir() || x.uid == 0 || x.gid == a.GID || inGroup(x.pid, a.GID) {
		return rep, errno
	}
	set, errno := x.call(&fsop.SetAttr{Ino: a.Ino, Valid: fsop.SetMode, Mode: a.Mode & fsop.ModePerm &^ fsop.ModeSetGID})
	if errno != fsop.OK {
		return nil, errno
	}
	rep.Attrs = set.Attrs
	return rep, fsop.OK
}

// inGroup reports whether a thread has a supplementary group.
func inGroup(pid, gid uint32) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/status")
	return err == nil && groupListed(string(b), gid)
}

// groupListed looks into the line Groups of /proc/PID/status.
func groupListed(status string, gid uint32) bool {
	want := strconv.FormatUint(uint64(gid), 10)
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "Groups:"); ok {
			for group := range strings.FieldsSeq(list) {
				if group == want {
					return true
				}
			}
		}
	}
	return false
}
