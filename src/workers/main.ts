import { startSmall } from '../process/start-up.ts'

startSmall()
const { workerProcess } = await import('./worker.ts')
await workerProcess(process.argv[2] ?? '')
