import child_process from 'node:child_process'
import { syncBuiltinESMExports } from 'node:module'

/** To be imported before a program: kills the process the moment it has started a PostgreSQL server. */
const { spawn } = child_process
child_process.spawn = ((file: string, args: string[], options: object) => {
  const child = spawn(file, args, options)
  if (args.includes('-D')) process.kill(process.pid, 'SIGKILL')
  return child
}) as typeof spawn
syncBuiltinESMExports()
