package raftlog

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.uber.org/zap"
)

// protocolLog is the protocol's logger. What it takes for news is detail here:
// changes of role and membership are logged by the group itself.
type protocolLog struct{ *zap.SugaredLogger }

var _ raft.Logger = protocolLog{}

func newProtocolLog(log *zap.Logger) protocolLog { return protocolLog{log.Named("raft").Sugar()} }

func (l protocolLog) Info(v ...any)                    { l.SugaredLogger.Debug(v...) }
func (l protocolLog) Infof(format string, v ...any)    { l.Debugf(format, v...) }
func (l protocolLog) Warning(v ...any)                 { l.Warn(v...) }
func (l protocolLog) Warningf(format string, v ...any) { l.Warnf(format, v...) }

// Fatal and Panic both end only this replica: who steps the protocol recovers.
func (l protocolLog) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l protocolLog) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l protocolLog) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l protocolLog) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
