import type { EndpointExtension } from 'daybook/extensions'

/** `GET /digest/{collection}`: who asks, and how many items of the collection they may see. */
const digest: EndpointExtension = {
  id: 'digest',
  handler: (app, { ItemsService }) => {
    app.get<{ Params: { collection: string } }>('/:collection', async (request) => {
      const { accountability, params } = request
      const items = new ItemsService(params.collection, { accountability })
      const { totalCount } = await items.readByQuery({ limit: 0, count: true })
      return { data: { for: accountability?.user?.email ?? 'everybody', items: totalCount } }
    })
  },
}

export default digest
