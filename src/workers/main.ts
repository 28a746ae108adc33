import { startSmall } from '../start-up.ts'

startSmall()
await import('./worker.ts')
