import { run, usage } from './init.ts'

/*
 * `daybook init` on a Node that is older than what the program needs (bin/daybook.js).
 */
try {
  const args = process.argv.slice(3)
  if (args.includes('--help') || args.includes('-h')) process.stdout.write(usage)
  else process.exitCode = await run(args)
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`)
  process.exitCode =
    (error as Error).name === 'UsageError' || String((error as { code?: string }).code).startsWith('ERR_PARSE_ARGS')
      ? 2
      : 1
}
