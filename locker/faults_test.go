package locker_test

const roleVariable = "LOCKER_TEST_ROLE"

func holderMain() int { return 0 }
