// Runs the public HTTP cache tests, and prints the suite's own verdict on each.
//
//     node verdicts.mjs SUITE BASE_URL [ID...]
//
// SUITE is the folder of the package, BASE_URL the proxy under test. With IDs only those tests are
// run, and the tests that they build on. One line a test, parted by tabs: its id, its kind (required,
// optimal, check), its verdict, its group, and what the suite says of it.
import path from 'node:path'
import { createRequire } from 'node:module'

const [suite, base, ...ids] = process.argv.slice(2)
const load = name => import(path.join(suite, name))

const { default: tests } = await load('tests/index.mjs')
const { default: surrogate } = await load('tests/surrogate-control.mjs')
const { runTests, getResults } = await load('client/runner.mjs')
const { determineTestResult, testLookup } = await load('lib/display.mjs')
const fetch = createRequire(path.join(suite, 'cli.mjs'))('node-fetch')

const names = {
  '-': 'untested',
  '✅': 'pass',
  '⛔️': 'fail',
  '⚠️': 'fail',
  Y: 'yes',
  N: 'no',
  '🔹': 'setup-failed',
  '⁉️': 'harness-failed',
  '⚪️': 'depends',
  '↻': 'retry'
}

tests.push(surrogate)
const wanted = new Set()
const want = id => {
  if (wanted.has(id)) return
  wanted.add(id)
  for (const other of testLookup(tests, id).depends_on ?? []) want(other)
}
ids.forEach(want)
const isWanted = test => ids.length === 0 || wanted.has(test.id)

await runTests(
  tests.map(group => ({ ...group, tests: group.tests.filter(isWanted) })),
  fetch, false, base
)
const results = getResults()
for (const { id: group, tests: some } of tests) {
  for (const test of some.filter(test => !test.browser_only && isWanted(test))) {
    const verdict = names[determineTestResult(tests, test.id, results)[2]]
    const why = Array.isArray(results[test.id]) ? results[test.id][1] : ''
    const said = String(why).replace(/\s+/g, ' ').slice(0, 160)
    console.log([test.id, test.kind ?? 'required', verdict, group, said].join('\t'))
  }
}
process.exit(0)
