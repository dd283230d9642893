package local

import (
	"errors"
	"io/fs"
	"slices"
	"sync"

	"go.uber.org/zap"
)

// trouble is what is wrong with single volumes: each is told of once, and the others go on.
type trouble struct {
	mu   sync.Mutex
	told map[string]string // by part/volume
}

// Parts of a volume that can be in trouble.
const (
	partRecord = "record"
	partFolder = "folder"
)

// note tells of what is wrong with a part of a volume; nil: nothing any more.
func (d *Driver) note(part, id string, err error) {
	t := &d.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	key := part + "/" + id
	switch {
	case err == nil:
		delete(t.told, key)
	case t.told[key] != err.Error():
		if t.told == nil {
			t.told = map[string]string{}
		}
		t.told[key] = err.Error()
		d.log.Error("volume can't be read; the others go on", zap.String("volume", id), zap.String("part", part), zap.Error(err))
	}
}

// forgetOthers forgets the trouble of volumes that are not there any more.
func (t *trouble) forgetOthers(ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.told {
		if !slices.ContainsFunc(ids, func(id string) bool { return key == partRecord+"/"+id || key == partFolder+"/"+id }) {
			delete(t.told, key)
		}
	}
}

// count is how many parts are in trouble.
func (t *trouble) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.told)
}

// all returns every record that can be read, and tells of the others.
func (d *Driver) all() ([]*record, error) {
	ids, err := d.records.Names()
	if err != nil {
		return nil, err
	}
	d.trouble.forgetOthers(ids)
	var all []*record
	for _, id := range ids {
		r, err := d.read(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		d.note(partRecord, id, err)
		if err == nil {
			all = append(all, r)
		}
	}
	return all, nil
}
