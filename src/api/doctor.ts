import { Type } from '../adapters/typebox.ts'
import type { ProcessVariables } from '../config/read.ts'
import type { Finding } from '../doctor/finding.ts'
import type { App } from '../http/http.ts'
import { route } from '../http/route.ts'
import { OneOf, Text } from '../http/shapes.ts'

/** `GET /ops/doctor`: what `npx daybook doctor` finds, by the variables that this process has. */
export function doctorRoute(app: App, deps: ProcessVariables): void {
  // It opens connections of its own: whoever asks meanwhile hears the same.
  let running: Promise<readonly Finding[]> | undefined
  app.get('/ops/doctor', examineRoute, async () => {
    running ??= examineOnce(deps).finally(() => {
      running = undefined
    })
    return { data: await running }
  })
}

async function examineOnce({ env }: ProcessVariables): Promise<readonly Finding[]> {
  const { examine } = await import('../doctor/doctor.ts')
  return examine(env)
}

const examineRoute = route({
  summary: 'Look for what the installation lacks',
  description:
    'Configuration, database, workers, Redis, mail and storage, as `npx daybook doctor`. Changes nothing; may take some seconds.',
  tag: 'Operations',
  scope: 'admin',
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          check: Text('workers', { description: 'The same in every run.' }),
          status: OneOf(['ok', 'warning', 'problem']),
          says: Text('not running: webhooks'),
          remedy: Type.Optional(Text('npx daybook worker webhooks')),
        }),
      ),
    }),
  },
})
