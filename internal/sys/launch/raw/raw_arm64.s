#include "textflag.h"

// func prlimit(resource uintptr, limit *[2]uint64) uintptr
TEXT ·prlimit(SB),NOSPLIT,$0-24
	MOVD	$0, R0
	MOVD	resource+0(FP), R1
	MOVD	$0, R2
	MOVD	limit+8(FP), R3
	MOVD	$261, R8 // prlimit64
	SVC
	MOVD	R0, ret+16(FP)
	RET

// func clone(flags uintptr, pidfd, tid, list unsafe.Pointer) uintptr
//
// The child never touches the stack, which is its parent's.
TEXT ·clone(SB),NOSPLIT,$0-40
	MOVD	flags+0(FP), R0
	MOVD	$0, R1 // the stack stays as it is
	MOVD	pidfd+8(FP), R2
	MOVD	$0, R3
	MOVD	tid+16(FP), R4
	MOVD	list+24(FP), R12
	MOVD	$220, R8 // clone
	SVC
	CBZ	R0, next
	MOVD	R0, ret+32(FP)
	RET

next:
	MOVD	0(R12), R8
	MOVD	8(R12), R0
	MOVD	16(R12), R1
	MOVD	24(R12), R2
	MOVD	32(R12), R3
	SVC
	MOVD	R0, 56(R12)
	MOVD	40(R12), R9
	CBZ	R9, done // Any
	CMP	$2, R9
	BEQ	want
	BGT	absent
	CMP	$0, R0 // NoError
	BLT	fail
	B	done

absent:
	CMN	$2, R0 // ENOENT
	BEQ	done
	CMN	$13, R0 // EACCES
	BEQ	done
	CMN	$20, R0 // ENOTDIR
	BEQ	done
	CMN	$19, R0 // ENODEV
	BEQ	done
	CMN	$36, R0 // ENAMETOOLONG
	BEQ	done
	CMN	$40, R0 // ELOOP
	BEQ	done
	CMN	$107, R0 // ENOTCONN
	BEQ	done
	CMN	$110, R0 // ETIMEDOUT
	BEQ	done
	CMN	$116, R0 // ESTALE
	BEQ	done
	B	fail

want:
	MOVD	48(R12), R10
	CMP	R10, R0
	BNE	fail

done:
	ADD	$64, R12
	B	next

fail:
	MOVD	$127, R0
	MOVD	$94, R8 // exit_group
	SVC
	B	fail
