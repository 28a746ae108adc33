import { exitWithParent, startSmall } from '../process/start-up.ts'

startSmall()
exitWithParent()
const { loadEnv } = await import('../config/config.ts')
const { setupProcess } = await import('./setup.ts')
process.exitCode = await setupProcess(
  () => loadEnv(process.cwd(), process.env),
  ({ admin }) => process.stdout.write(`${JSON.stringify({ admin })}\n`),
)
