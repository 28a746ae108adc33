import { spawn } from 'node:child_process'

/** Starts a script as a shell would that is left with `&`, and stays until it is killed. */
const child = spawn(process.execPath, process.argv.slice(2), { stdio: ['ignore', 'inherit', 'inherit'] })
process.stdout.write(`started ${child.pid}\n`)
setInterval(() => undefined, 1_000_000)
