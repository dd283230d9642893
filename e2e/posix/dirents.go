package posix

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// dirent is one entry as getdents64 gives it.
type dirent struct {
	ino  uint64
	off  int64 // the position behind it, as telldir would say
	typ  byte
	name string
}

// readDir reads a directory from the handle's position to the end. A listing that
// gives the same last entry twice in a row would go on for ever: that is an error.
func readDir(fd int) ([]dirent, error) {
	var all []dirent
	buf := make([]byte, 32<<10)
	for {
		ents, err := readDirChunk(fd, buf)
		if err != nil || len(ents) == 0 {
			return all, err
		}
		if n := len(all); n > 0 && all[n-1] == ents[len(ents)-1] {
			return all, fmt.Errorf("the listing does not get past %q", all[n-1].name)
		}
		all = append(all, ents...)
	}
}

// readDirChunk is one getdents64 call; no entries is the end.
func readDirChunk(fd int, buf []byte) ([]dirent, error) {
	n, err := unix.Getdents(fd, buf)
	if err != nil {
		return nil, err
	}
	var ents []dirent
	for b := buf[:n]; len(b) > 0; {
		size := binary.NativeEndian.Uint16(b[16:])
		name := b[19:size]
		for i, ch := range name {
			if ch == 0 {
				name = name[:i]
				break
			}
		}
		ents = append(ents, dirent{binary.NativeEndian.Uint64(b), int64(binary.NativeEndian.Uint64(b[8:])), b[18], string(name)})
		b = b[size:]
	}
	return ents, nil
}

// listDir reads a directory by path, without "." and "..".
func listDir(path string) ([]dirent, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	all, err := readDir(fd)
	var ents []dirent
	for _, e := range all {
		if e.name != "." && e.name != ".." {
			ents = append(ents, e)
		}
	}
	return ents, err
}
