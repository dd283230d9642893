package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A record is one line of fixed width: its number, padded.
const (
	recordBytes  = 64
	recordPeriod = 100 * time.Millisecond
)

func record(n int) []byte {
	return fmt.Appendf(nil, "%-*s\n", recordBytes-1, fmt.Sprintf("record %d", n))
}

// appendRecords appends one record after the other, each synced, and prints a line for each: "ok N MILLISECONDS"
// or "failed N ERROR". A record that failed may be there or not: the next attempt writes it again at its place.
// An existing file is gone on with.
func appendRecords(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end := ended()
	tick := time.NewTicker(recordPeriod)
	defer tick.Stop()
	for n := int(info.Size() / recordBytes); ; {
		begin := time.Now()
		_, err := f.WriteAt(record(n), int64(n)*recordBytes)
		if err == nil {
			err = f.Sync()
		}
		now := time.Now().UnixMilli()
		if err != nil {
			fmt.Printf("failed %d %d %v\n", n, now, err)
		} else {
			fmt.Printf("ok %d %d %d\n", n, now, time.Since(begin).Milliseconds())
			n++
		}
		select {
		case <-end:
			return nil
		case <-tick.C:
		}
	}
}

// check verifies a file of records, and prints how many it has.
func check(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(b)%recordBytes != 0 {
		return fmt.Errorf("%s has %d bytes, no whole number of records", name, len(b))
	}
	for n := 0; len(b) > 0; n, b = n+1, b[recordBytes:] {
		if want := record(n); !bytes.Equal(b[:recordBytes], want) {
			return fmt.Errorf("%s: record %d is %q", name, n, strings.TrimSpace(string(b[:recordBytes])))
		}
	}
	info, err := os.Stat(name)
	if err == nil {
		fmt.Println(info.Size() / recordBytes)
	}
	return err
}

// hold opens files, one of them unlinked, takes a lock, and uses all of that ten times a second until it is
// told to end. It prints "ok N" or the error for each round; anything but "ok" is a failure of the file system.
func hold(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	open := func(name string) (*os.File, error) {
		return os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	}
	kept, err := open("kept")
	if err != nil {
		return err
	}
	locked, err := open("locked")
	if err != nil {
		return err
	}
	unlinked, err := open("unlinked")
	if err != nil {
		return err
	}
	if err := errors.Join(os.Remove(unlinked.Name()), syscall.Flock(int(locked.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)); err != nil {
		return err
	}
	end := ended()
	tick := time.NewTicker(recordPeriod)
	defer tick.Stop()
	for n := 0; ; n++ {
		begin := time.Now()
		if err := errors.Join(use(kept, n), use(unlinked, n), reread(locked)); err != nil {
			fmt.Printf("failed %d %d %s\n", n, time.Now().UnixMilli(), strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			fmt.Printf("ok %d %d %d\n", n, time.Now().UnixMilli(), time.Since(begin).Milliseconds())
		}
		select {
		case <-end:
			return nil
		case <-tick.C:
		}
	}
}

// use writes at one place of an open file and reads it back.
func use(f *os.File, n int) error {
	want, got := record(n), make([]byte, recordBytes)
	if _, err := f.WriteAt(want, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.ReadAt(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("%s: read %q after writing record %d", filepath.Base(f.Name()), got, n)
	}
	return nil
}

// reread asserts that the lock is still held: no other open file description gets it.
func reread(locked *os.File) error {
	other, err := os.Open(locked.Name())
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("a second lock was answered with %v", err)
	}
	return nil
}
