package kube

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/klog/v2"
)

// TestLogTo shows that the library speaks through the program's own log.
func TestLogTo(t *testing.T) {
	core, seen := observer.New(zapcore.InfoLevel)
	LogTo(zap.New(core))
	defer klog.ClearLogger()
	klog.ErrorS(errors.New("refused"), "Failed to watch", "type", "claims")
	klog.V(2).InfoS("talk")
	klog.InfoS("more talk")
	all := seen.All()
	if len(all) != 1 || all[0].Message != "Failed to watch" || all[0].Level != zapcore.WarnLevel || all[0].ContextMap()["type"] != "claims" {
		t.Errorf("logged %+v", all)
	}
}
