import { Page } from '../../shell/page.tsx'
import { Empty } from '../../ui/states.tsx'

/** What everybody else sees who follows a link here. */
export const ForAdministrators = () => (
  <Page title="Schema">
    <Empty title="Administrators alone change collections" />
  </Page>
)
