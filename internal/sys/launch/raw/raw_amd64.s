#include "textflag.h"

// func prlimit(resource uintptr, limit *[2]uint64) uintptr
TEXT ·prlimit(SB),NOSPLIT,$0-24
	MOVQ	$0, DI
	MOVQ	resource+0(FP), SI
	MOVQ	$0, DX
	MOVQ	limit+8(FP), R10
	MOVQ	$302, AX // prlimit64
	SYSCALL
	MOVQ	AX, ret+16(FP)
	RET

// func clone(flags uintptr, pidfd, tid, list unsafe.Pointer) uintptr
//
// The child never touches the stack, which is its parent's.
TEXT ·clone(SB),NOSPLIT,$0-40
	MOVQ	flags+0(FP), DI
	MOVQ	$0, SI // the stack stays as it is
	MOVQ	pidfd+8(FP), DX
	MOVQ	tid+16(FP), R10
	MOVQ	$0, R8
	MOVQ	list+24(FP), R12
	MOVQ	$56, AX // clone
	SYSCALL
	TESTQ	AX, AX
	JEQ	next
	MOVQ	AX, ret+32(FP)
	RET

next:
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	SYSCALL
	MOVQ	AX, 56(R12)
	MOVQ	40(R12), BX
	CMPQ	BX, $0 // Any
	JEQ	done
	CMPQ	BX, $2
	JEQ	want
	JGT	absent
	TESTQ	AX, AX // NoError
	JLT	fail
	JMP	done

absent:
	CMPQ	AX, $-2 // ENOENT
	JEQ	done
	CMPQ	AX, $-13 // EACCES
	JEQ	done
	CMPQ	AX, $-20 // ENOTDIR
	JEQ	done
	CMPQ	AX, $-19 // ENODEV
	JEQ	done
	CMPQ	AX, $-36 // ENAMETOOLONG
	JEQ	done
	CMPQ	AX, $-40 // ELOOP
	JEQ	done
	CMPQ	AX, $-107 // ENOTCONN
	JEQ	done
	CMPQ	AX, $-110 // ETIMEDOUT
	JEQ	done
	CMPQ	AX, $-116 // ESTALE
	JEQ	done
	JMP	fail

want:
	CMPQ	AX, 48(R12)
	JNE	fail

done:
	ADDQ	$64, R12
	JMP	next

fail:
	MOVQ	$127, DI
	MOVQ	$231, AX // exit_group
	SYSCALL
	JMP	fail
