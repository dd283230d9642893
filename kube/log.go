package kube

import (
	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// LogTo sends what the library for Kubernetes has to say (watches that fail, above all) to
// log. It concerns the whole process.
func LogTo(log *zap.Logger) {
	klog.SetLogger(logr.New(sink{log.Named("kube").Sugar()}))
}

// sink writes to zap. Levels above 0 are the library's talk, and left out.
type sink struct{ log *zap.SugaredLogger }

var _ logr.LogSink = sink{}

func (sink) Init(logr.RuntimeInfo)  {}
func (sink) Enabled(level int) bool { return level == 0 }

func (s sink) Info(_ int, msg string, pairs ...any) { s.log.Debugw(msg, pairs...) }

func (s sink) Error(err error, msg string, pairs ...any) {
	s.log.Warnw(msg, append(pairs, "error", err)...)
}

func (s sink) WithValues(pairs ...any) logr.LogSink { return sink{s.log.With(pairs...)} }
func (s sink) WithName(name string) logr.LogSink    { return sink{s.log.Named(name)} }
