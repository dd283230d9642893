package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Fusermount answers for fusermount3, the helper that FUSE libraries start to
// mount and unmount, so that an image needs no other package. args are the
// arguments behind the program's name. It returns the exit code; what went wrong
// is said in one line on stderr.
//
//	fusermount3 [-o OPTION[,OPTION…]] [--] DIR    with _FUSE_COMMFD: mount
//	fusermount3 -u [-q] [-z] [--] DIR             unmount; -z at once, even if busy
//
// Unlike the original it is not meant to be set-user-id: it mounts with the
// rights that the caller has.
func Fusermount(args []string) int {
	return fusermount(args, os.Environ(), os.Stdout, os.Stderr)
}

func fusermount(args, env []string, stdout, stderr io.Writer) int {
	r, err := parseFusermount(args)
	switch {
	case err != nil:
	case r.version:
		fmt.Fprintln(stdout, "fusermount3 version: 3.10 (tak-replicated)")
	case r.unmount:
		err = r.doUnmount()
	default:
		err = r.doMount(env)
	}
	if err != nil {
		if !r.quiet {
			fmt.Fprintln(stderr, "fusermount3:", err)
		}
		return 1
	}
	return 0
}

// fuserequest is what a command line of fusermount3 asks for.
type fuserequest struct {
	dir                           string
	options                       string
	unmount, lazy, quiet, version bool
}

func parseFusermount(args []string) (r fuserequest, err error) {
	var dirs []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--":
			dirs = append(dirs, args[i+1:]...)
			i = len(args)
		case a == "-o":
			if i++; i == len(args) {
				return r, errors.New("option -o needs a value")
			}
			r.options = args[i]
		case strings.HasPrefix(a, "-o"):
			r.options = a[2:]
		case a == "-V" || a == "--version":
			r.version = true
		case len(a) > 1 && a[0] == '-':
			if err := r.flags(a[1:]); err != nil {
				return r, err
			}
		default:
			dirs = append(dirs, a)
		}
	}
	if r.version {
		return r, nil
	}
	if len(dirs) != 1 {
		return r, fmt.Errorf("one directory is needed, not %d", len(dirs))
	}
	r.dir = dirs[0]
	return r, nil
}

func (r *fuserequest) flags(letters string) error {
	for _, l := range letters {
		switch l {
		case 'u':
			r.unmount = true
		case 'z':
			r.lazy = true
		case 'q':
			r.quiet = true
		default:
			return fmt.Errorf("unknown option -%c", l)
		}
	}
	return nil
}

func (r *fuserequest) doUnmount() error {
	flags := unix.UMOUNT_NOFOLLOW
	if r.lazy {
		flags |= unix.MNT_DETACH
	}
	if err := unix.Unmount(r.dir, flags); err != nil {
		return fmt.Errorf("unmount %s: %w", r.dir, err)
	}
	return nil
}

// doMount mounts and hands the device to the library through the socket that
// _FUSE_COMMFD names.
func (r *fuserequest) doMount(env []string) error {
	sock, err := commSocket(env)
	if err != nil {
		return err
	}
	o, err := parseFuseOptions(r.options)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(r.dir, &st); err != nil {
		return fmt.Errorf("failed to access mountpoint %s: %w", r.dir, err)
	}
	fd, err := openDevice()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d%s", fd, st.Mode&unix.S_IFMT, os.Getuid(), os.Getgid(), o.data)
	if err := unix.Mount(o.source, r.dir, mountType(o.subtype), o.flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", r.dir, err)
	}
	if err := unix.Sendmsg(sock, []byte{0}, unix.UnixRights(fd), nil, 0); err != nil {
		_ = unix.Unmount(r.dir, unix.MNT_DETACH)
		return fmt.Errorf("hand the device over: %w", err)
	}
	return nil
}

func commSocket(env []string) (int, error) {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "_FUSE_COMMFD="); ok {
			fd, err := strconv.Atoi(v)
			if err != nil || fd < 0 {
				return 0, fmt.Errorf("_FUSE_COMMFD is %q, not a descriptor", v)
			}
			return fd, nil
		}
	}
	return 0, errors.New("_FUSE_COMMFD is not set: started by hand?")
}

// fuseOptions are the mount options of a FUSE library.
type fuseOptions struct {
	source, subtype string
	flags           uintptr
	data            string // ",name=value" of what the kernel's FUSE knows
}

// mountFlags are the options that are flags of mount(2): what each sets, and
// what its opposite clears.
var mountFlags = map[string]struct{ set, clear uintptr }{
	"ro": {set: unix.MS_RDONLY}, "rw": {clear: unix.MS_RDONLY},
	"nosuid": {set: unix.MS_NOSUID}, "suid": {clear: unix.MS_NOSUID},
	"nodev": {set: unix.MS_NODEV}, "dev": {clear: unix.MS_NODEV},
	"noexec": {set: unix.MS_NOEXEC}, "exec": {clear: unix.MS_NOEXEC},
	"sync": {set: unix.MS_SYNCHRONOUS}, "async": {clear: unix.MS_SYNCHRONOUS},
	"noatime": {set: unix.MS_NOATIME}, "atime": {clear: unix.MS_NOATIME},
	"dirsync": {set: unix.MS_DIRSYNC},
}

func parseFuseOptions(s string) (fuseOptions, error) {
	o := fuseOptions{source: "fuse", flags: unix.MS_NOSUID | unix.MS_NODEV}
	for _, opt := range splitOptions(s) {
		name, value, _ := strings.Cut(opt, "=")
		f, isFlag := mountFlags[opt]
		switch {
		case isFlag:
			o.flags = o.flags&^f.clear | f.set
		case name == "fsname":
			o.source = value
		case name == "subtype":
			o.subtype = value
		case opt == "allow_other" || opt == "default_permissions" || name == "max_read" || name == "blksize":
			o.data += "," + opt
		case opt == "auto_unmount" || opt == "nonempty" || opt == "":
			// Nothing to do: mounts here end with the device, and nobody checks emptiness.
		default:
			return o, fmt.Errorf("unknown mount option %q", opt)
		}
	}
	return o, nil
}

// splitOptions splits at commas; a backslash takes the next character as it is.
func splitOptions(s string) (opts []string) {
	var cur strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			cur.WriteByte(s[i])
		case s[i] == ',':
			opts = append(opts, cur.String())
			cur.Reset()
		default:
			cur.WriteByte(s[i])
		}
	}
	return append(opts, cur.String())
}
