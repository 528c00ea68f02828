package system_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nightly lists the tests that run only at night, in the form of -skip, each with what finds the
// same defects in make test or .ci/run: tests, or a fault of make chaos.
var nightly = map[string]string{
	"TestAKillBeforeAnAttemptIsKnown":                 "internal/thread TestKilledBeforeTheCountIsKnown",
	"TestALongJobAndAnOlderRedis":                     "internal/longstore TestLongModel; longjob TestLost",
	"TestALongJobInAnotherLanguageLetsItsProcessGo":   "TestALongJobLetsItsProcessGo; longjob TestCommand",
	"TestALongJobInAnotherLanguageSurvivesEverything": "TestALongJobSurvivesEverything; longjob TestCommandEnds",
	"TestALongJobInRubyStops":                         "longjob TestEnds; internal/handler TestSliceEnds",
	"TestALongJobInRubySurvivesEverything":            "TestALongJobSurvivesEverything; test/runners TestOwnTests",
	"TestALongJobOfWhatIsLeft":                        "longjob TestAListOfWhatIsLeft",
	"TestALongJobWaitsForTheOneBeforeIt":              "internal/longstore TestLongModel",
	"TestAPersonSaysThatAHostIsDead":                  "internal/app/deadhost TestWithoutAHook; internal/cli TestScripts; internal/store TestSettleHost",
	"TestARecurringLongJob":                           "internal/longstore TestRecurringProperties; longjob TestRecur",
	"TestARecurringLongJobOfRuby":                     "longjob TestRecur; test/runners TestOwnTests",
	"TestAStarvedMachineAtTenSeconds":                 "TestStoppedDaemonLosesItsLock",
	"TestAStoppedSliceSavesNothing":                   "longjob TestLost; internal/longstore TestLongModel",
	"TestClassLockInPostgres":                         "internal/locket/classlock/postgres TestLocks; internal/locket/classlock TestLocksInPostgres",
	"TestClassLockWithATimeLimit":                     "internal/locket/classlock TestLockDeadline",
	"TestContainer":                                   "deploy/container TestDockerfile; chaos container-restart",
	"TestContainerImage":                              "deploy/container TestDockerfile, whose CGO_ENABLED=0 it proves",
	"TestCronUnderKills":                              "internal/schedule/runner TestEveryTickOnce; chaos master-kill",
	"TestDashboardOfALargeFleet":                      "internal/view TestLooksAreBounded; internal/web TestPagesOfFailures",
	"TestDeathsFromOutside":                           "internal/master TestVerdicts",
	"TestDeathsOfTheTree":                             "internal/master TestVerdicts; chaos tree-kill",
	"TestDelayedJobsAreInTime":                        "internal/schedule/delayed TestForwarderLooks",
	"TestDelayedJobsOfMastersThatAreKilled":           "internal/schedule/delayed TestForwardersWhoseAnswersAreLost; chaos master-kill",
	"TestDevWithARunner":                              "TestRailsLike; TestFirstRun",
	"TestEachJobRunsOnce":                             "TestDrainUnderLoad; chaos quit",
	"TestFair":                                        "internal/store TestFair; internal/store TestModelFair",
	"TestFleetThatDisagrees":                          "internal/app TestFleetDifferences; internal/store TestFleetOfSeveralLeases",
	"TestHealth":                                      "TestHealthWhileRedisIsWaitedFor; internal/cli TestScripts",
	"TestHistoryOfKilledProcesses":                    "TestHistoryCountsEachJob; internal/history TestSumsSurviveTheWay",
	"TestIdle":                                        "internal/workerproc TestLooksOfAFleet; internal/store TestBoundedWork",
	"TestJobsWaitForDescriptors":                      "internal/handler TestJobsWaitForDescriptors; chaos no-files",
	"TestKillACommand":                                "TestKillMatrix; internal/handler TestKill",
	"TestKilledWhileRemovingFailures":                 "internal/store TestEditFailed",
	"TestLocksAreHammered":                            "internal/store TestModel; chaos worker-kill",
	"TestLockedJobsDoNotStarveOthers":                 "internal/store TestFreeBehindLockedAtSize",
	"TestLockerRun":                                   "TestLockerTerminal; internal/cli TestLockerScripts",
	"TestLogThatBlocks":                               "internal/app TestLogger; chaos log-blocked",
	"TestLongJobOfADeadMaster":                        "TestJobsOfADeadMaster; internal/workerproc TestJobsDieWithTheirMaster",
	"TestNamesOfEmptyQueuesGo":                        "internal/app/pruner TestPruner; internal/store TestPruneModel",
	"TestNeighboursInContainers":                      "TestNeighboursUnderSystemd; internal/sys/procfs TestBlind",
	"TestNeighboursOfOtherUsers":                      "TestUnreadableProcesses; internal/sys/procfs TestEnvironOfAnotherUser",
	"TestNeighboursWhoseNumberIsUsedAgain":            "internal/store TestLocalProcesses",
	"TestNodeResque":                                  "TestNodeWorkersComeAndGo; internal/store TestOtherWorkers",
	"TestOrders":                                      "internal/master TestOrders; internal/store TestOrders",
	"TestPauseQueues":                                 "TestPauseUnderLoad; internal/workerproc TestPause",
	"TestPolicyOfADaemonThatIsGone":                   "internal/store TestPolicy; internal/workerproc TestDeathPolicy",
	"TestRedisAwayAtTenSeconds":                       "TestRedisGoesAway; internal/workerproc TestBeats",
	"TestRedisIsBackWhileIdle":                        "internal/app TestRedisIsBack",
	"TestReloadChangesTheMaster":                      "internal/master TestReload; TestReloadUnderLoad",
	"TestReloadThatIsRefused":                         "internal/master TestReload; TestBadReloadKeepsTheOldConfiguration",
	"TestRetriesOfCommands":                           "internal/workerproc TestRetries; internal/thread TestRetries",
	"TestRetryStorm":                                  "internal/workerproc TestRetries; internal/store TestModel",
	"TestRetryStormWithDeaths":                        "internal/store TestCountOfTheDead; chaos worker-kill",
	"TestRowsAreDeletedWhateverIsKilled":              "longjob/sqlscan TestScanDelete; longjob/sqlscan TestFaults",
	"TestRunnerHangs":                                 "internal/runner TestCancel; TestRunnerDeaths",
	"TestRunnerNuisances":                             "internal/runner TestLeavesBehind; internal/runner TestChatters",
	"TestRunnerOfAJob":                                "internal/runner TestJobs; TestRailsLike",
	"TestRunnerReloadOvertaken":                       "internal/runner/template TestRetire; TestRunnerReload",
	"TestRunnerShortDeaths":                           "internal/runner TestDeaths; TestRunnerDeaths",
	"TestRunnerThatBootsForAWhile":                    "internal/runner TestBoot; internal/runner/template TestBoots",
	"TestRunnersAreKilled":                            "TestRunnerDeaths; chaos runner-kill",
	"TestScheduleChanges":                             "internal/schedule/runner TestTheNewestDefinitionCounts",
	"TestSchedulerLock":                               "internal/schedule/runner TestAfterARubyScheduler",
	"TestSecretsOfArguments":                          "internal/redact TestArgs; internal/web TestRedaction",
	"TestSignalsAtAnyMomentOfAStart":                  "internal/master TestSignals; internal/master TestStart",
	"TestSignalsAtAnyMomentOfAWorkersStart":           "internal/master TestSignals; internal/workerproc TestToldToGoBeforeItIsUp",
	"TestSignalsReachSuspects":                        "internal/master TestApart",
	"TestSignalsToAWorkerProcessThatKills":            "internal/master TestSignals; TestKillMatrix",
	"TestSignalsToAWorkerProcessThatStarts":           "internal/master TestSignals; internal/workerproc TestToldToGoBeforeItIsUp",
	"TestSlowExec":                                    "internal/handler TestKillOfACommandThatDoesNotBegin; chaos exec-blocked",
	"TestStoppedWorkerIsKilledInTime":                 "internal/master TestSweep; chaos worker-stop",
	"TestStoresMoveKilled":                            "internal/store TestTransferModel",
	"TestSuspectsAreShown":                            "internal/view TestFindings; TestPoisonAmongMany",
	"TestSystemdUpgrade":                              "TestUpgrade; TestSystemd",
	"TestTemplateWithoutRoom":                         "test/runners TestTemplates",
	"TestTenantsTakeTurns":                            "internal/longstore TestTenantsModel; longjob TestTenant",
	"TestTheExampleOfALongJob":                        "TestALongJobSurvivesEverything; longjob TestSteps",
	"TestTheExampleOfALongJobInPython":                "longjob TestCommand",
	"TestTheExamplesThatExpireRows":                   "longjob/sqlscan TestScanDelete",
	"TestTwoFormats":                                  "internal/store TestFormatUnread; make chaos with -previous",
	"TestUSR1AndTheMasterHangs":                       "internal/workerproc TestKill; TestUSR1ThenACrash",
	"TestUniqueQueueTurnedOff":                        "internal/store TestUniqueTurnedOff",
	"TestUntilEmptyWithSuspects":                      "internal/master TestUntilEmpty; TestPausedUntilEmpty",
	"TestWaitingForALock":                             "internal/store TestLines; TestLines",
	"TestWebKilledInABulkRemove":                      "internal/store TestEditFailed; internal/web TestOthersAreAtIt",
	"TestWebKilledInABulkRetry":                       "internal/store TestEditFailed; internal/web TestOthersAreAtIt",
	"TestWorkerProcessThatIsLongInEnding":             "internal/master TestRecover",
	"TestWorkersMadeOfOurIDsPruneNone":                "TestRubyStandInPrunes; TestWorkersOfOthersAreLeftAlone",

	// Parts of tests.
	"TestCommandsOfADeadMaster/with_on_master_death":                                                                        "TestJobsOfADeadMaster; internal/handler TestCommandsDieWithTheWorker",
	"TestDrainWithoutRedis/(it_hangs|what_has_ended|an_end_that)":                                                           "internal/workerproc TestDrainThatIsNotRecorded; internal/store TestParkedEnds",
	"TestHostileServer/(an_array|a_line|values|a_text).*job_in_hand":                                                        "TestHostileServer with HTTP; chaos net-down",
	"TestJobsOfADeadMaster/(SIGUSR1|TERM_ends|the_end_of|what_its_code)":                                                    "internal/workerproc TestTheMasterDies; internal/workerproc TestKill",
	"TestKillMatrix/(go,_(sleeps|channel|read|flock)|command,_ignores)":                                                     "the rest of TestKillMatrix; internal/handler TestKill",
	"TestLockIsLost/(.*does_not_listen|redis_has_lost)":                                                                     "internal/workerproc TestJobsDoNotOutliveTheirLocks; chaos redis-empty",
	"TestNeighboursUnderSystemd/(.*each_other's_jobs|a_lock_keeps|one_that_is_killed)":                                      "internal/store TestLocalProcesses; internal/master TestSweepOthers",
	"TestRedisRefusesAtTheStart/(READONLY|BUSY|NOREPLICAS|MASTERDOWN)":                                                      "TestRedisRefusesAtTheStart/MISCONF; internal/rdb TestUnreachable",
	"TestRedisRefusesWhileJobsRun/(MISCONF|BUSY|NOREPLICAS|MASTERDOWN)":                                                     "TestRedisRefusesWhileJobsRun/READONLY; internal/store TestUnexecuted",
	"TestSignalsToOneWorkerProcess/(starting|paused|draining|killing)":                                                      "internal/workerproc TestReports; TestKillMatrix",
	"TestSignalsToTheMaster/(starting|paused|draining|killing)":                                                             "internal/master TestSignals, cell by cell",
	"TestStoppedDaemonLosesItsLock/.*twelve":                                                                                "the rest of TestStoppedDaemonLosesItsLock",
	"TestSystemd/(stop_waits|a_changed|a_stop_in|the_watchdog|the_password)":                                                "internal/sys/systemd TestNotifier; TestPasswordIsChanged; deploy/systemd TestUnitsAreSandboxed",
	"TestUnreadableProcesses/.*(shown,_not|without_an)":                                                                     "the rest of TestUnreadableProcesses",
	"TestUpgrade/(a_program_that_(refuses|cannot|is_some|ends)|a_link|without|what_has|of_one|a_configuration|.*waits_for)": "internal/master TestUpgrade; internal/master TestTakeOver",
}

// TestNightlyTestsExist: the tests in the table exist, and each row names tests that make test
// runs.
func TestNightlyTestsExist(t *testing.T) {
	t.Parallel()
	tests := map[string]map[string]bool{} // by folder
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		folder, err := filepath.Rel("../..", filepath.Dir(path))
		require.NoError(t, err)
		if tests[folder] == nil {
			tests[folder] = map[string]bool{}
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[folder][f.Name.Name] = true
			}
		}
		return nil
	}))
	named := regexp.MustCompile(`(?:((?:internal|longjob|test|deploy|locker)\S*) )?(Test\w+)`)
	for pattern, instead := range nightly {
		name, _, part := strings.Cut(pattern, "/")
		assert.True(t, tests["test/system"][name], "no such test: %s", name)
		found := named.FindAllStringSubmatch(instead, -1)
		assert.NotEmpty(t, found, "%s: what sees its defects?", name)
		for _, one := range found {
			folder := cmp.Or(one[1], "test/system")
			assert.True(t, tests[folder][one[2]], "%s: no such test: %s", name, one[0])
			if folder == "test/system" && (one[2] != name || !part) {
				assert.NotContains(t, nightly, one[2], "%s: make test does not run this either", name)
			}
		}
	}
}
