import { startSmall } from '../src/process/start-up.ts'

/*
 * `npm run log:verify`: the same as `npx daybook log verify`. Without DATABASE_URL it looks at the embedded server that
 * `npm start` runs.
 */
startSmall()
const { verify } = await import('../src/cli/log.ts')
try {
  process.exitCode = await verify(process.argv.slice(2))
} catch (error) {
  const { message, code } = error as Error & { code?: string }
  process.stderr.write(`${message || code}\n`)
  process.exitCode = 1
}
