package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tak-os.org/tak-replicated/kube/api"
)

// Object names what an Event is about.
type Object struct {
	APIVersion, Kind, Namespace, Name, UID string
}

// ObjectOfVolume, ObjectOfClaim and ObjectOfPod name what Events are mostly about.
func ObjectOfVolume(v *api.ReplicatedVolume) Object {
	return Object{APIVersion: api.GroupVersion.String(), Kind: api.Kind, Namespace: v.Namespace, Name: v.Name, UID: string(v.UID)}
}

// ObjectOfClaim names a claim.
func ObjectOfClaim(namespace, name, uid string) Object {
	return Object{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: uid}
}

// ObjectOfPod names a Pod.
func ObjectOfPod(namespace, name, uid string) Object {
	return Object{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
}

// Event tells a user of an object something. The same words about the same
// object are one Event, whose count is that of this process. Warning is for what somebody should look at.
func (c *Client) Event(ctx context.Context, component string, about Object, warning bool, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if len(message) > eventMessageMax {
		message = message[:eventMessageMax]
	}
	typ := corev1.EventTypeNormal
	if warning {
		typ = corev1.EventTypeWarning
	}
	now := metav1.NewTime(time.Now())
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: eventName(component, about, reason, message), Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: about.APIVersion, Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, UID: types.UID(about.UID)},
		Reason:         reason, Message: message, Type: typ, Source: corev1.EventSource{Component: component},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	events := c.core.CoreV1().Events(namespace)
	_, err := events.Create(ctx, e, metav1.CreateOptions{})
	if !AlreadyExists(err) {
		return wrap(err, "create event")
	}
	patch, err := json.Marshal(map[string]any{"lastTimestamp": now, "count": c.seen.more(e.Name)})
	if err != nil {
		return err
	}
	_, err = events.Patch(ctx, e.Name, mergePatch, patch, metav1.PatchOptions{})
	return wrap(err, "update event")
}

// eventMessageMax is what the server takes.
const eventMessageMax = 1024

// eventName is the same for the same words about the same object.
func eventName(component string, about Object, reason, message string) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s\x00%s", component, about.Kind, about.UID, reason, message)
	return fmt.Sprintf("%s.%016x", about.Name, h.Sum64())
}

// eventCounts counts how often this process has told the same.
type eventCounts struct {
	mu   sync.Mutex
	told map[string]int32
}

// eventCountsMost bounds what is remembered; then counting begins anew.
const eventCountsMost = 4096

func (e *eventCounts) more(name string) int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told == nil || len(e.told) >= eventCountsMost {
		e.told = map[string]int32{}
	}
	e.told[name] = max(1, e.told[name]) + 1
	return e.told[name]
}
