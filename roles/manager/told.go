package manager

import (
	"sync"
	"time"
)

// tellAgainAfter is how long the same Event is not told again.
const tellAgainAfter = 10 * time.Minute

// told remembers which Events were told lately.
type told struct {
	mu struct {
		sync.Mutex
		volumes map[string]map[notice]time.Time
	}
}

// due reports whether a notice is to be told now, and remembers that it was.
func (t *told) due(volume string, n notice, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.volumes == nil {
		t.mu.volumes = map[string]map[notice]time.Time{}
	}
	notices := t.mu.volumes[volume]
	if notices == nil {
		notices = map[notice]time.Time{}
		t.mu.volumes[volume] = notices
	}
	for old, at := range notices {
		if now.Sub(at) > tellAgainAfter {
			delete(notices, old)
		}
	}
	if _, lately := notices[n]; lately {
		return false
	}
	notices[n] = now
	return true
}

func (t *told) forget(volume string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.volumes, volume)
}
