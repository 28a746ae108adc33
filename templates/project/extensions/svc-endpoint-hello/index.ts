import type { EndpointExtension } from 'daybook/extensions'

/** `GET /hello` greets whoever asks. The context, the second parameter, has items, mail, files and the log. */
const hello: EndpointExtension = {
  id: 'hello',
  handler: (app, { log }) => {
    app.get('/', async ({ accountability }) => {
      const name = accountability?.user?.email ?? 'stranger'
      log.info({ name }, 'somebody says hello')
      return { hello: name }
    })
  },
}

export default hello
