class ResourceManagementClient:
    """Is named by the suite, and never made: the resource group is given to it."""
