import { startSmall } from '../process/start-up.ts'

startSmall()
await import('./program.ts')
