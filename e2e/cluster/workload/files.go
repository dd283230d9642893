package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

func cat(args []string) error {
	for _, p := range args {
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, f)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func list(args []string) error {
	for _, p := range args {
		entries, err := os.ReadDir(p)
		if err != nil {
			return err
		}
		for _, e := range entries {
			fmt.Println(e.Name())
		}
	}
	return nil
}

func stat(args []string) error {
	for _, p := range args {
		var s syscall.Stat_t
		if err := syscall.Stat(p, &s); err != nil {
			return &os.PathError{Op: "stat", Path: p, Err: err}
		}
		fmt.Printf("%s %d:%d %o %d\n", p, s.Uid, s.Gid, s.Mode, s.Size)
	}
	return nil
}

// write writes a file and does not end before it is durable.
func write(name, text string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// digest prints one sum over all names, kinds and contents.
func digest(dir string) error {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(h, "%q %v\n", rel, d.Type())
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%d %x\n", len(b), sha256.Sum256(b))
		return nil
	})
	if err == nil {
		fmt.Printf("%x\n", h.Sum(nil))
	}
	return err
}

// tryLock takes a lock without waiting: exit code 1 says that another has it.
func tryLock(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
